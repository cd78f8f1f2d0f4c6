package sqlstore

import (
	"cmp"
	"errors"
	"time"
)

// filling is a list that is filling a collection.
type filling struct {
	began  int64     // cache.position at its start
	missed []*Change // since its start
	bytes  int64     // of these
	err    error     // why it will fail
	done   chan struct{}
}

// fill reads a collection into memory. list calls its argument with each record and returns the revision of the list.
func (c *cache) fill(resource Resource, f *filling, list func(func(*Record) error) (int64, error)) {
	col := collection{rows: newTree(byKey)}
	counted := int64(0) // of col.bytes in c.filling
	defer func() { c.filling.Add(-counted) }()
	// After a start all collections are filled at once. Together they must fit. Only large ones give way: leaving out small ones
	// would make no room.
	fits := func() bool {
		all := c.filling.Add(col.bytes - counted)
		counted = col.bytes
		return c.fits(&col) && (all <= c.room() || col.bytes <= c.budget/smallShare)
	}
	at, err := list(func(r *Record) error {
		by := col.packer
		if col.bytes+r.memory() > c.bareLimit() {
			by = nil
		}
		col.add(r, by)
		if !fits() && !col.bare {
			col.strip(packerOf(col.rows))
		}
		if !fits() {
			col.thin(c.bareLimit())
		}
		if !fits() {
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
