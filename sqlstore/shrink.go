package sqlstore

import (
	"time"

	"github.com/tidwall/btree"
)

// When the collections take more than there is room for, a goroutine makes them smaller, least recently used first: it drops the indexes of
// one, or else packs its values or leaves them out, or leaves out packed ones, or drops all of it. It looks at a few rows at a time, since
// each write needs the cache's lock.

const (
	// shrinkBatch is how many rows are made smaller at a time, while readers and writers wait.
	shrinkBatch = 256
	// spareShare is the part of the budget that rows written meanwhile may take in addition. Then writers wait.
	spareShare = 16
)

// pass goes through the rows of a bare collection and makes them smaller.
type pass struct {
	rows   *btree.BTreeG[*Record] // as they were at first
	packs  bool                   // whether it packs whole values, or leaves them out if by is nil; else it leaves out packed ones
	by     *packer
	excess int64 // how many bytes of packed values to leave out
	freed  int64
}

// evict drops encodings until the rest fits. If that is not enough, collections are made smaller soon.
func (c *cache) evict() {
	c.encodings.shrink(c.room() - c.bytes)
	if c.bytes > c.room() {
		c.shrinkSoon()
	}
}

func (c *cache) shrinkSoon() {
	if !c.shrinking {
		c.shrinking = true
		go c.shrink()
	}
}

// shrink makes collections smaller until all fit.
func (c *cache) shrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for col := c.excessive(); col != nil; col = c.excessive() {
		p := c.begin(col)
		if p == nil {
			continue
		}
		col.pass = p
		c.mu.Unlock()
		c.run(col, p)
		c.mu.Lock()
		if col.pass != p { // it is no longer in the cache
			continue
		}
		if col.pass = nil; !p.packs && p.freed == 0 {
			c.drop(col)
		}
	}
	c.shrinking = false
	c.shrunk.Broadcast()
}

// excessive returns a collection to make smaller, or nil if all fit.
func (c *cache) excessive() (oldest *collection) {
	for _, col := range c.collections {
		if col.rows == nil {
			continue
		}
		if !c.fits(col) {
			return col
		}
		if oldest == nil || col.used < oldest.used {
			oldest = col
		}
	}
	if c.bytes <= c.room() {
		return nil
	}
	return oldest
}

// begin returns the pass that makes a collection smaller, or nil if begin has done that.
func (c *cache) begin(col *collection) *pass {
	if len(col.indexes) > 0 && c.fits(col) {
		c.dropIndexes(col)
		return nil
	}
	if col.bare {
		return &pass{rows: col.rows.Copy(), excess: col.excess(c.bareLimit())}
	}
	col.bare, col.packer = true, packerOf(col.rows)
	col.stripped, col.retry = c.clock, time.Now().Add(refillAfter)
	col.unindexed = time.Time{} // there will be space for indexes
	c.dropSnapshots(col)
	return &pass{rows: col.rows.Copy(), packs: true, by: col.packer}
}

// run makes the rows of a pass smaller.
func (c *cache) run(col *collection, p *pass) {
	batch := make([]*Record, 0, shrinkBatch)
	p.rows.Scan(func(r *Record) bool {
		switch {
		case p.packs:
			batch = append(batch, p.by.pack(r))
		case r.packed != nil:
			batch = append(batch, r.bare())
		}
		if len(batch) < shrinkBatch {
			return true
		}
		goesOn := c.replace(col, p, batch)
		batch = batch[:0]
		return goesOn
	})
	c.replace(col, p, batch)
}

// replace replaces rows of a collection with the same rows, made smaller. Packed values for which there is no room are left out. It returns
// false if the pass has done what it was for, or if the collection is no longer in the cache.
func (c *cache) replace(col *collection, p *pass, rows []*Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if col.pass != p {
		return false
	}
	for _, r := range rows {
		now, ok := col.rows.Get(r)
		if !ok || now.Revision != r.Revision || now.memory() <= r.memory() {
			continue
		}
		if r.packed != nil && !c.hasRoom(col, r.packed.memory()) {
			r = r.bare()
		}
		col.rows.Set(r)
		freed := now.memory() - r.memory()
		col.bytes -= freed
		c.bytes -= freed
		col.whole -= int64(len(now.Value))
		col.packed += r.packed.memory() - now.packed.memory()
		c.dropEncoding(now)
		if p.freed += freed; !p.packs && p.freed >= p.excess {
			break
		}
	}
	c.dropSnapshots(col) // they have the rows as they were
	c.shrunk.Broadcast()
	return p.packs || p.freed < p.excess
}

// dropSnapshots drops the snapshots of a collection.
func (c *cache) dropSnapshots(col *collection) {
	c.older.Add(-col.olderBytes())
	col.current, col.older = nil, nil
}

// hasRoom reports whether a bare collection may take that many more bytes, once all its values are packed or left out.
func (c *cache) hasRoom(col *collection, bytes int64) bool {
	bytes -= col.whole
	return c.bytes+bytes <= c.room() && col.bytes+bytes <= c.bareLimit()
}

// grows reports whether to read a bare collection into memory with its values: if it fits in addition to the collections that
// were read since it became bare.
func (c *cache) grows(col *collection) bool {
	if !col.bare || time.Now().Before(col.retry) {
		return false
	}
	whole := collection{rows: col.rows, bytes: col.bytes - col.packed + col.values - col.whole}
	others := int64(0)
	for _, other := range c.collections {
		if other != col && other.used > col.stripped {
			others += other.bytes + other.indexBytes()
		}
	}
	col.retry = time.Now().Add(refillAfter)
	return c.fits(&whole) && whole.bytes+others <= c.room()
}
