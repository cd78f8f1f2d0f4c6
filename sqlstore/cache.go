package sqlstore

import (
	"bytes"
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/sqube/sqube/dialect"
)

// cache holds the live rows of collections in memory, so that reads need not
// ask the database.
//
//	first read ─► fill: one list from the log ─► changes of the hub, as they
//	come ─► snapshots, shared by all readers between two changes
//
// A collection is an ordered tree of records. A snapshot is a copy-on-write
// copy of it, which costs nothing until the collection changes. Records are
// those of the hub's changes: a row that this process wrote is in memory once.
//
// The rows of all collections together, their indexes and forms, and what is known
// of the last changes take no more than the budget. Of a collection that does not fit the rows are kept without
// their values, as many of which as possible are kept compressed; the others are
// read by their ids. What does not fit either is read from the database.
type cache struct {
	budget int64

	mu          sync.Mutex
	position    int64 // changes up to here are in the collections
	collections map[Resource]*collection
	bytes       int64 // of all collections
	clock       int64 // counts reads, for collection.used
	encodings   encodings
	recent      recent
}

// collection is what the cache knows of one resource.
type collection struct {
	rows *btree.BTreeG[*Record] // nil while it is not in memory
	// filled is the revision of the list that filled it: older changes are in it.
	filled int64
	// changed is the revision of the last change.
	changed int64
	bytes   int64 // of the rows, as they are in memory
	values  int64 // of their values alone, wherever these are
	used    int64 // cache.clock at the last read

	bare     bool    // the values are left in the database
	packer   *packer // compresses them, where there is room; nil for none
	stripped int64   // cache.clock when it became bare

	indexes  map[attr]*index
	indexing *indexing // nil while none is being made
	// unindexed is until when no index is made, after there was no memory for one.
	unindexed time.Time

	filling *filling
	// retry is when the collection may be read into memory again, after it, or
	// its values, did not fit.
	retry time.Time
	pause time.Duration // until that, the last time

	current *snapshot // nil where nobody has asked since the last change
	older   []*snapshot
	dropped int64 // bytes of rows that changes took out of the collection, ever
}

// filling is a list under way that fills a collection.
type filling struct {
	began  int64     // cache.position then
	missed []*Change // since it began
	bytes  int64     // of these
	err    error     // why it is in vain
	done   chan struct{}
}

// snapshot is the state of a collection from revision from up to revision to.
type snapshot struct {
	rows     *btree.BTreeG[*Record]
	from, to int64 // to is 0 for the current state
	bare     bool  // see collection
	values   int64
	dropped  int64 // collection.dropped when it was the current one
	// indexes are those of the collection at that state; the cache's mu is held for it.
	indexes map[attr]*btree.BTreeG[valueKey]
}

// hold keeps an index of the snapshot. The caller holds the cache's mu.
func (s *snapshot) hold(a attr, keys *btree.BTreeG[valueKey]) {
	if s.indexes == nil {
		s.indexes = map[attr]*btree.BTreeG[valueKey]{}
	}
	s.indexes[a] = keys
}

const (
	// treeDegree is that of upstream's watch cache.
	treeDegree = 16
	// recordOverhead is roughly what a record takes in memory beside its texts.
	recordOverhead = 200
	// refillAfter is how long a collection that did not fit stays out of memory
	// at first, maxRefillAfter in the end, and retryAfter one that could not be read.
	refillAfter    = time.Minute
	maxRefillAfter = time.Hour
	retryAfter     = time.Second
	// olderShare is the part of the budget that rows may take which one
	// collection keeps only for pages of lists that began earlier.
	olderShare   = 16
	maxSnapshots = 16
	// largeShare is the part of the budget that a collection may take whose
	// rows are large on average: of largeRow or more. To read such a row from
	// the database costs little beside sending it, and memory holds few of them.
	largeShare = 16
	largeRow   = 32 << 10
	// bareReserve is the part of the budget that the rows of one collection leave
	// to others, without their values.
	bareReserve = 4
	// recentShare is the part of the budget that the last changes may take.
	recentShare = 8
)

func newCache(budget, position int64) *cache {
	budget = max(budget, 0)
	return &cache{budget: budget, position: position, collections: map[Resource]*collection{}, recent: recent{limit: budget / recentShare, since: position}}
}

func byKey(a, b *Record) bool { return a.Key < b.Key }

func (r *Record) memory() int64 {
	return int64(len(r.Key)+len(r.Labels)+len(r.Fields)+len(r.Value)) + r.packed.memory() + recordOverhead
}

// apply takes in the changes of the revisions up to to.
func (c *cache) apply(to int64, changes []*Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		if change.Record.Revision <= c.position {
			continue
		}
		c.recent.add(change)
		col := c.collections[change.Resource]
		switch {
		case col == nil:
		case col.filling != nil:
			if col.filling.bytes += change.Record.memory(); col.filling.bytes > c.budget {
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
}

// change takes one change into a collection.
func (c *cache) change(col *collection, change *Change) {
	r := &change.Record
	if col.rows == nil || r.Revision <= col.filled {
		return
	}
	col.retire(r.Revision-1, c.budget/olderShare)
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
	col.changed = r.Revision
	if !c.fits(col) {
		c.shrink(col)
	}
}

// add puts a row into the collection and returns the one that it replaces. Where
// values are left in the database, by keeps this one; nil for none.
func (col *collection) add(r *Record, by *packer) (before *Record) {
	if col.bare {
		r = by.pack(r)
	} else {
		own := *r // r is a part of a Change, which would keep the version before in memory, that the one before it, and so on
		if cap(r.Value) > len(r.Value)+len(r.Value)/4 {
			// What encoded it grew its buffer further than this row should hold for good.
			own.Value = bytes.Clone(r.Value)
		}
		r = &own
	}
	before, _ = col.rows.Set(r)
	col.bytes += r.memory()
	col.values += int64(r.length())
	col.forget(before)
	return before
}

// forget takes a row out of the account; nil for none.
func (col *collection) forget(r *Record) {
	if r != nil {
		col.bytes -= r.memory()
		col.values -= int64(r.length())
		col.dropped += r.memory()
	}
}

// dropEncoding lets go of the form of a row; nil for none.
func (c *cache) dropEncoding(r *Record) {
	if r != nil && c.encodings.bytes.Load() > 0 {
		c.encodings.drop(r.Revision)
	}
}

// dropEncodings lets go of the forms of all rows of a collection.
func (c *cache) dropEncodings(col *collection) {
	if c.encodings.bytes.Load() > 0 {
		col.rows.Scan(func(r *Record) bool {
			c.encodings.drop(r.Revision)
			return true
		})
	}
}

// retire keeps the current snapshot as an older one, the last of which ends at
// revision to, and lets go of those that hold too much in memory.
func (col *collection) retire(to, maxBytes int64) {
	if col.current != nil {
		col.current.to = to
		col.older = append(col.older, col.current)
		col.current = nil
	}
	for len(col.older) > maxSnapshots || len(col.older) > 0 && col.dropped-col.older[0].dropped > maxBytes {
		col.older[0] = nil
		col.older = col.older[1:]
	}
}

// fits says whether a collection may be kept as it is.
func (c *cache) fits(col *collection) bool {
	if col.bare {
		return col.bytes <= c.bareLimit()
	}
	if col.bytes > c.budget/largeShare && col.bytes/int64(col.rows.Len()) >= largeRow {
		return false
	}
	return col.bytes <= c.room()
}

// room is how many bytes collections may take.
func (c *cache) room() int64 { return c.budget - c.recent.bytes }

// bareLimit is how many bytes the rows of a collection may take without their values.
func (c *cache) bareLimit() int64 { return c.budget - c.budget/bareReserve }

// evict drops forms, and then shrinks the collections that were not read for
// longest, until the rest fits.
func (c *cache) evict() {
	c.encodings.shrink(c.room() - c.bytes)
	for c.bytes > c.room() {
		var oldest *collection
		for _, col := range c.collections {
			if col.rows != nil && (oldest == nil || col.used < oldest.used) {
				oldest = col
			}
		}
		c.shrink(oldest)
	}
}

// shrink lets go of the indexes of a collection, or else of its values, or of
// what it has of them compressed, or of all of it.
func (c *cache) shrink(col *collection) {
	switch {
	case len(col.indexes) > 0 && c.fits(col):
		c.dropIndexes(col)
	case !col.bare:
		c.dropEncodings(col)
		whole := col.rows
		c.bytes -= col.bytes
		col.strip(nil)
		c.bytes += col.bytes
		col.stripped, col.retry = c.clock, time.Now().Add(refillAfter)
		col.unindexed = time.Time{} // there is room for indexes now
		if !c.fits(col) {
			c.drop(col)
			return
		}
		if col.packer = packerOf(whole); col.packer != nil {
			go c.pack(col, col.packer, whole)
		}
	default:
		before := col.bytes
		if col.thin(c.bareLimit()); col.bytes == before {
			c.drop(col)
			return
		}
		c.bytes -= before - col.bytes
	}
}

// grows says whether a bare collection is to be read into memory with its
// values: there is room beside the collections that have been read since it
// became bare.
func (c *cache) grows(col *collection) bool {
	if !col.bare || time.Now().Before(col.retry) {
		return false
	}
	whole := collection{rows: col.rows, bytes: col.bytes + col.values}
	col.rows.Scan(func(r *Record) bool {
		whole.bytes -= r.packed.memory()
		return true
	})
	others := int64(0)
	for _, other := range c.collections {
		if other != col && other.used > col.stripped {
			others += other.bytes + other.indexBytes()
		}
	}
	col.retry = time.Now().Add(refillAfter)
	return c.fits(&whole) && whole.bytes+others <= c.room()
}

func (c *cache) drop(col *collection) {
	c.bytes -= col.bytes + col.indexBytes()
	c.dropEncodings(col)
	*col = collection{used: col.used, retry: time.Now().Add(refillAfter)}
}

// reset forgets everything: changes up to position were missed.
func (c *cache) reset(position int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource, col := range c.collections {
		if col.filling != nil {
			col.filling.err, col.filling.missed = errMissed, nil
		} else {
			col.packer = nil // who is packing its values shall stop
			delete(c.collections, resource)
		}
	}
	c.bytes = 0 // what is being filled has none yet
	c.encodings.shrink(0)
	c.position = max(c.position, position)
	c.recent.reset(c.position)
}

// lookup returns the state of a collection at a revision, 0 for the newest, and
// the revision of that state. Where the collection is not in memory but is to
// be, it returns the filling under way, and whether the caller has to see to it.
func (c *cache) lookup(resource Resource, revision int64) (snap *snapshot, at int64, f *filling, begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	col := c.collections[resource]
	if col == nil {
		col = &collection{}
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

// held returns how many bytes all of it takes.
func (c *cache) held() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size()
}

// size is held of a caller that holds c.mu.
func (c *cache) size() int64 { return c.bytes + c.encodings.bytes.Load() + c.recent.bytes }

// peek returns the newest state of a collection, or nil where it is not in memory.
func (c *cache) peek(resource Resource) *snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if col := c.collections[resource]; col != nil && col.rows != nil {
		return col.at(0)
	}
	return nil
}

// at returns the state at a revision, or nil where it is no longer there.
func (col *collection) at(revision int64) *snapshot {
	if revision == 0 || revision >= col.changed {
		if col.current == nil {
			col.current = &snapshot{rows: col.rows.Copy(), from: col.changed, bare: col.bare, values: col.values, dropped: col.dropped}
			for a, x := range col.indexes {
				col.current.hold(a, x.keys.Copy())
			}
		}
		return col.current
	}
	for _, s := range col.older {
		if s.from <= revision && revision <= s.to {
			return s
		}
	}
	return nil
}

// fill reads a collection into memory with list, which calls its argument with
// each record and returns the revision of the list.
func (c *cache) fill(resource Resource, f *filling, list func(func(*Record) error) (int64, error)) {
	col := collection{rows: newTree(byKey)}
	at, err := list(func(r *Record) error {
		by := col.packer
		if col.bytes+r.memory() > c.bareLimit() {
			by = nil
		}
		col.add(r, by)
		if !c.fits(&col) && !col.bare {
			col.strip(packerOf(col.rows))
		}
		if !c.fits(&col) {
			col.thin(c.bareLimit())
		}
		if !c.fits(&col) {
			return errTooLarge
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(f.done)
	had := c.collections[resource]
	col.used = had.used
	if err == nil && at < f.began {
		err = errMissed
	}
	switch err = cmp.Or(f.err, err); {
	case errors.Is(err, errTooLarge):
		had.pause = min(max(2*had.pause, refillAfter), maxRefillAfter)
		had.retry = time.Now().Add(had.pause)
	case err != nil:
		had.retry = time.Now().Add(retryAfter)
	}
	if had.filling = nil; err != nil {
		return
	}
	c.collections[resource] = &col
	col.filled, col.changed = at, at
	if col.bare {
		col.stripped, col.retry = c.clock, time.Now().Add(refillAfter)
	}
	c.bytes += col.bytes
	for _, change := range f.missed {
		c.change(&col, change)
	}
	c.evict()
}

var (
	errTooLarge = errors.New("the collection is too large for the cache")
	errMissed   = errors.New("changes were missed")
)
