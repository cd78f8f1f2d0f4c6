package sqlstore

import (
	"slices"

	"github.com/sqube/sqube/dialect"
)

// recent is what is known of the last changes of the log, of all resources,
// without their values. A watch that comes back finds here which of them
// concern it, and reads those alone. When a server ends, each kubelet's watch
// comes back to another one and selects a few of thousands of changes.
type recent struct {
	limit  int64 // bytes
	bytes  int64
	since  int64 // the changes are all that came after this revision
	blocks []recentBlock
}

// recentBlock is a part of them, in order. What is in it never changes.
type recentBlock struct {
	changes []recentChange
	bytes   int64
}

type recentChange struct {
	resource Resource
	revision int64
	key      string
	// made is the version that the change made, nil in a deletion, and replaced
	// the one that it replaced, nil in a creation; both without values, and the same
	// where their labels and fields are.
	made, replaced *Record
}

// recentBlocks is into how many blocks all of it is divided at least.
const recentBlocks = 16

// recentOverhead is roughly what a change takes beside its versions.
const recentOverhead = 80

// readOver is how many changes of other objects a read of the log takes along,
// rather than to be two.
const readOver = 8

func (r *recent) reset(position int64) {
	*r = recent{limit: r.limit, since: position}
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
	for r.bytes += size; r.bytes > r.limit; {
		oldest := r.blocks[0]
		r.bytes -= oldest.bytes
		r.since = oldest.changes[len(oldest.changes)-1].revision
		r.blocks = slices.Delete(r.blocks, 0, 1)
	}
}

// span is a part of the log: what is behind revision from, up to and including to.
type span struct{ from, to int64 }

// missed returns the parts of the log behind from and up to to in which there
// are changes that may concern the interest. They are in order.
func (c *cache) missed(i *interest, from, to int64) (spans []span) {
	c.mu.Lock()
	position, since, blocks := c.position, c.recent.since, slices.Clone(c.recent.blocks)
	c.mu.Unlock()
	if from < min(since, to) {
		spans = append(spans, span{from, min(since, to)})
	}
	between := 0
	for _, block := range blocks {
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
