package sqlstore

import (
	"slices"
	"sync/atomic"

	"github.com/sqube/sqube/dialect"
)

// recent has the last changes of the log, of all resources, without their values. A watch that resumes finds here which of them
// concern it, and reads only those. When a server stops, the watch of each kubelet resumes on another one and selects a few of
// thousands of changes.
type recent struct {
	limit  int64        // bytes
	bytes  atomic.Int64 // may be read without the cache's lock
	since  int64        // it has all changes after this revision
	blocks []recentBlock
}

// recentBlock is a part of the changes, in order. It is only appended to.
type recentBlock struct {
	changes []recentChange
	bytes   int64
}

type recentChange struct {
	resource Resource
	revision int64
	key      string
	// made is the version that the change made, nil for a deletion. replaced is the one that it replaced, nil for a creation.
	// Both are bare, and the same record if their labels and fields are equal.
	made, replaced *Record
}

// recentBlocks is the minimum number of blocks at the limit.
const recentBlocks = 16

// recentOverhead is roughly the memory of a change besides its versions.
const recentOverhead = 80

// readOver is how many changes of other objects a read of the log includes to avoid a second read.
const readOver = 8

func (r *recent) reset(position int64) {
	r.blocks, r.since = nil, position
	r.bytes.Store(0)
}

func (r *recent) add(c *Change) {
	if r.limit == 0 {
		r.since = c.Record.Revision
		return
	}
	change := recentChange{resource: c.Resource, revision: c.Record.Revision, key: c.Record.Key}
	size := int64(recentOverhead)
	if c.Operation != dialect.Delete {
		change.made = c.Record.bare()
		size += change.made.memory()
	}
	switch p := c.Previous; {
	case p == nil:
	case change.made != nil && p.Labels == change.made.Labels && p.Fields == change.made.Fields:
		change.replaced = change.made
	default:
		change.replaced = p.bare()
		size += change.replaced.memory()
	}
	last := len(r.blocks) - 1
	if last < 0 || r.blocks[last].bytes+size > r.limit/recentBlocks {
		r.blocks = append(r.blocks, recentBlock{})
		last++
	}
	block := &r.blocks[last]
	block.changes = append(block.changes, change)
	block.bytes += size
	for r.bytes.Add(size); r.bytes.Load() > r.limit; {
		oldest := r.blocks[0]
		r.bytes.Add(-oldest.bytes)
		r.since = oldest.changes[len(oldest.changes)-1].revision
		r.blocks = slices.Delete(r.blocks, 0, 1)
	}
}

// span is a part of the log: after revision from and up to to.
type span struct{ from, to int64 }

// missed returns the parts of the log, after from and up to to, with changes that may concern i, in order.
func (c *cache) missed(i *interest, from, to int64) (spans []span) {
	c.mu.Lock()
	position, since, blocks := c.position, c.recent.since, slices.Clone(c.recent.blocks)
	c.mu.Unlock()
	if from < min(since, to) {
		spans = append(spans, span{from, min(since, to)})
	}
	between := 0
	for _, block := range blocks {
		if block.changes[len(block.changes)-1].revision <= from {
			continue
		}
		for _, change := range block.changes {
			if change.revision <= from || change.revision > to || change.resource != i.resource {
				continue
			}
			switch last := len(spans) - 1; {
			case !i.concerns(change.key, change.made, change.replaced):
				between++
				continue
			case last >= 0 && between <= readOver:
				spans[last].to = change.revision
			default:
				spans = append(spans, span{change.revision - 1, change.revision})
			}
			between = 0
		}
	}
	if from = max(from, position); from < to {
		spans = append(spans, span{from, to})
	}
	return spans
}
