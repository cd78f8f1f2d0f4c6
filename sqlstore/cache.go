package sqlstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqube/sqube/dialect"
)

// cache holds the live rows of collections in memory, so that reads do not need the database.
//
//	first read ─► fill: one list from the log ─► changes of the hub, as they
//	come ─► snapshots, shared by all readers between two changes
//
// A collection is an ordered tree of records. A snapshot is a copy-on-write copy of it, which costs nothing until the collection
// changes. Records share their values with the hub's changes, so a row that this process wrote is in memory only once.
//
// The rows of all collections and their older snapshots, the indexes, the encodings and the recent changes take no more than the
// budget, and a sixteenth more while collections are made smaller. If a collection does not fit, its rows are kept without values, except
// for as many compressed values as possible; the others are read by id. If even that does not fit, the collection is read from the
// database.
type cache struct {
	budget int64

	mu          sync.Mutex
	position    int64 // changes up to here are in the collections
	collections map[Resource]*collection
	empty       bool         // the log was empty at first, so resources that have not got a collection since have no rows
	bytes       int64        // of all collections, without older
	older       atomic.Int64 // bytes that collections keep only for lists that began earlier; may be read without mu
	clock       int64        // counts reads, for collection.used
	encodings   encodings
	recent      recent
	sizes       map[Resource]collectionSize // of collections that are not in memory and have not changed since
	filling     atomic.Int64                // bytes of the collections being filled, not in bytes
	shrinking   bool                        // whether shrink runs
	shrunk      *sync.Cond                  // with mu: it has made something smaller, or has ended
}

const (
	// treeDegree is the same as in upstream's watch cache.
	treeDegree = 16
	// recordOverhead is roughly the memory of a record besides its strings.
	recordOverhead = 200
	// refillAfter is how long a collection that did not fit stays out of memory at first. Each time that it does not fit again,
	// it stays out for longer, up to maxRefillAfter. retryAfter is for a collection that could not be read.
	refillAfter    = time.Minute
	maxRefillAfter = time.Hour
	retryAfter     = time.Second
	// olderShare is the part of the budget for rows that are kept only for lists that began earlier.
	olderShare   = 16
	maxSnapshots = 16
	// largeShare is the part of the budget for a collection with rows of largeRow bytes or more on average. Reading such a row
	// from the database costs little compared to sending it, and memory has room for only a few.
	largeShare = 16
	largeRow   = 32 << 10
	// smallShare is the part of the budget up to which a collection is always read into memory while others are.
	smallShare = 128
	// bareReserve is the part of the budget that a bare collection leaves for others.
	bareReserve = 4
	// recentShare is the part of the budget for recent changes.
	recentShare = 8
)

func newCache(budget, position int64) *cache {
	budget = max(budget, 0)
	c := &cache{budget: budget, position: position, collections: map[Resource]*collection{}, sizes: map[Resource]collectionSize{}, recent: recent{limit: budget / recentShare, since: position}}
	c.shrunk = sync.NewCond(&c.mu)
	return c
}

func byKey(a, b *Record) bool { return a.Key < b.Key }

func (r *Record) memory() int64 {
	return int64(len(r.Key)+len(r.Labels)+len(r.Fields)+len(r.Value)) + r.packed.memory() + recordOverhead
}

// apply applies the changes of the revisions up to to.
func (c *cache) apply(to int64, changes []*Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		if change.Record.Revision <= c.position {
			continue
		}
		c.recent.add(change)
		delete(c.sizes, change.Resource)
		col := c.collections[change.Resource]
		switch {
		case col == nil && c.empty:
			c.collections[change.Resource] = &collection{}
		case col == nil:
		case col.filling != nil:
			if col.filling.bytes += change.size(); col.filling.bytes > c.budget {
				col.filling.err, col.filling.missed = errTooLarge, nil
			}
			if col.filling.err == nil {
				col.filling.missed = append(col.filling.missed, change)
			}
		case col.rows != nil:
			c.change(col, change)
		}
	}
	c.position = max(c.position, to)
	c.evict()
	for c.shrinking && c.bytes > c.room()+c.budget/spareShare {
		c.shrunk.Wait()
	}
}

// change applies a change to a collection.
func (c *cache) change(col *collection, change *Change) {
	r := &change.Record
	if col.rows == nil || r.Revision <= col.filled {
		return
	}
	c.older.Add(-col.olderBytes())
	col.retire(r.Revision - 1)
	by := col.packer
	if !c.hasRoom(col, r.memory()) {
		by = nil
	}
	c.bytes -= col.bytes + col.indexBytes()
	if change.Operation == dialect.Delete {
		before, _ := col.rows.Delete(r)
		col.forget(before)
		col.reindex(before, nil)
		c.dropEncoding(before)
	} else {
		before := col.add(r, by)
		col.reindex(before, r)
		c.dropEncoding(before)
	}
	c.bytes += col.bytes + col.indexBytes()
	c.older.Add(col.olderBytes())
	c.dropOlder()
	col.changed = r.Revision
	if !c.fits(col) {
		c.shrinkSoon()
	}
}

// dropOlder drops older snapshots, those of the collections that keep most for them first, until the rest fits.
func (c *cache) dropOlder() {
	for c.older.Load() > c.budget/olderShare {
		var most *collection
		for _, col := range c.collections {
			if most == nil || col.olderBytes() > most.olderBytes() {
				most = col
			}
		}
		c.older.Add(-most.olderBytes())
		most.dropOldest()
		c.older.Add(most.olderBytes())
	}
}

// dropEncoding drops the encoding of a row; nil for none.
func (c *cache) dropEncoding(r *Record) {
	if r != nil && c.encodings.bytes.Load() > 0 {
		c.encodings.drop(r.Revision)
	}
}

// fits reports whether a collection may be kept as it is.
func (c *cache) fits(col *collection) bool {
	if col.bare {
		return col.bytes <= c.bareLimit()
	}
	if col.bytes > c.budget/largeShare && col.bytes/int64(col.rows.Len()) >= largeRow {
		return false
	}
	return col.bytes <= c.room()
}

// room returns how many bytes collections may take.
func (c *cache) room() int64 { return c.budget - c.older.Load() - c.recent.bytes.Load() }

// bareLimit returns how many bytes a bare collection may take.
func (c *cache) bareLimit() int64 { return c.budget - c.budget/bareReserve }

// drop drops a collection without values.
func (c *cache) drop(col *collection) {
	c.bytes -= col.bytes + col.indexBytes()
	c.older.Add(-col.olderBytes())
	*col = collection{used: col.used, retry: time.Now().Add(refillAfter)}
}

// reset drops everything: changes up to position were missed.
func (c *cache) reset(position int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource, col := range c.collections {
		if col.filling != nil {
			col.filling.err, col.filling.missed = errMissed, nil
		} else {
			col.pass = nil
			delete(c.collections, resource)
		}
	}
	c.bytes = 0 // collections being filled have none yet
	c.older.Store(0)
	clear(c.sizes)
	c.empty = false
	c.encodings.shrink(0)
	c.position = max(c.position, position)
	c.recent.reset(c.position)
}

// lookup returns a snapshot of a collection at a revision, 0 for the newest, and the revision of that state. If the collection is
// not in memory but should be, it returns the filling in progress, and whether the caller must start it.
func (c *cache) lookup(resource Resource, revision int64) (snap *snapshot, at int64, f *filling, begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	col := c.collections[resource]
	if col == nil {
		col = &collection{}
		if c.empty {
			col.rows, col.filled, col.changed = newTree(byKey), c.position, c.position
		}
		c.collections[resource] = col
	}
	c.clock++
	col.used = c.clock
	if revision == 0 && c.grows(col) {
		c.drop(col)
		col.retry = time.Time{}
	}
	if col.rows != nil {
		at = max(c.position, col.filled)
		return col.at(revision), at, nil, false
	}
	if col.filling == nil && revision == 0 && !time.Now().Before(col.retry) {
		col.filling, begins = &filling{began: c.position, done: make(chan struct{})}, true
	}
	return nil, 0, col.filling, begins
}

// collectionSize is the number of objects of a collection, and the total length of their values in bytes.
type collectionSize struct{ objects, bytes int64 }

// sizeOf returns the size of a collection if that is known, and the position of the cache.
func (c *cache) sizeOf(resource Resource) (size collectionSize, known bool, position int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	col := c.collections[resource]
	if col == nil && c.empty {
		return collectionSize{}, true, c.position
	}
	if col != nil && col.rows != nil {
		return collectionSize{int64(col.rows.Len()), col.values}, true, c.position
	}
	size, known = c.sizes[resource]
	return size, known, c.position
}

// measured remembers the size that a collection had while the cache was at position.
func (c *cache) measured(resource Resource, size collectionSize, position int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.position == position {
		c.sizes[resource] = size
	}
}

// isLive reports whether the version of an object with that revision is known to be live. Only the committer can know.
func (c *cache) isLive(resource Resource, key string, revision int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	col := c.collections[resource]
	if col == nil || col.rows == nil {
		return false
	}
	found, _ := col.rows.Get(&Record{Key: key})
	return found != nil && found.Revision == revision
}

// held returns the memory of the cache in bytes.
func (c *cache) held() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size()
}

// size is held for a caller that holds c.mu.
func (c *cache) size() int64 {
	return c.bytes + c.older.Load() + c.encodings.bytes.Load() + c.recent.bytes.Load()
}
