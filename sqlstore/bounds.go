package sqlstore

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqube/sqube/dialect"
)

// Bounds limit what a store may hold. Deletions are never refused.
type Bounds struct {
	// Objects is how many objects there may be. A create beyond it is refused.
	Objects Bound
	// Bytes is how large the database may be. Beyond it, creates are refused, and updates except those of objects that are being deleted;
	// at twice of it, these too. The size is measured at most once a second, and estimated in between.
	Bytes Bound
}

// Bound is a limit, 0 for none, and the setting that users know it by.
type Bound struct {
	Limit   int64
	Setting string
}

// BoundError is the error of a write that a bound does not allow.
type BoundError struct {
	Bound
	bytes bool
}

// Error implements error.
func (e *BoundError) Error() string {
	if e.bytes {
		return fmt.Sprintf("the database is as large as %s allows, %d bytes: delete something, or raise the limit", e.Setting, e.Limit)
	}
	return fmt.Sprintf("there are as many objects as %s allows, %d: delete some, or raise the limit", e.Setting, e.Limit)
}

// bounds are the Bounds of a store, and how much of them is used.
type bounds struct {
	set       atomic.Pointer[Bounds] // nil for none
	objects   atomic.Int64           // with a bound, how many there are; otherwise how many more than when the store was opened
	bytes     atomic.Int64
	measured  atomic.Int64 // when bytes was measured, in Unix nanoseconds
	measuring atomic.Bool
}

const (
	measureEvery = time.Second
	// deletionFactor is how many times the bound of bytes what is being deleted may take.
	deletionFactor = 2
)

// SetBounds limits what the store holds from now on.
func (s *Store) SetBounds(ctx context.Context, b Bounds) error {
	if b.Objects.Limit == 0 && b.Bytes.Limit == 0 {
		s.bounds.set.Store(nil)
		return nil
	}
	if b.Objects.Limit > 0 {
		var live int64
		q := s.statement().setApart()
		q.add("SELECT count(*) FROM log WHERE replaced_by IS NULL AND api_group <> " + q.arg(InternalGroup))
		if err := s.run(ctx, q, func(row dialect.Row) error { return row.Scan(&live) }); err != nil {
			return fmt.Errorf("counting the objects for their limit: %w", err)
		}
		s.bounds.objects.Store(live)
	}
	if b.Bytes.Limit > 0 {
		if err := s.measureBytes(ctx); err != nil {
			return err
		}
	}
	s.bounds.set.Store(&b)
	return nil
}

func (s *Store) measureBytes(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	space, err := s.engine.Space(ctx)
	if err != nil {
		return fmt.Errorf("measuring the database for its limit: %w", err)
	}
	s.bounds.bytes.Store(space.Database - space.Free)
	s.bounds.measured.Store(time.Now().UnixNano())
	return nil
}

// allowed returns a *BoundError if the bounds do not allow what p writes. The store is open until it returns.
func (s *Store) allowed(p *pending) error {
	b := s.bounds.set.Load()
	if b == nil {
		return nil
	}
	rows := []*pending{p}
	if p.whole != nil {
		rows = p.whole.rows
	}
	var created int64
	var tooLarge error
	if b.Bytes.Limit > 0 {
		s.remeasure()
		if used := s.bounds.bytes.Load(); used >= b.Bytes.Limit {
			tooLarge = &BoundError{b.Bytes, true}
		}
	}
	for _, row := range rows {
		switch {
		case row.row.Operation == dialect.Delete, row.row.Group == InternalGroup:
			continue
		case row.row.Operation == dialect.Create:
			created++
		case tooLarge != nil && s.bounds.bytes.Load() < deletionFactor*b.Bytes.Limit && bytes.Contains(row.row.Value, []byte(`"deletionTimestamp"`)):
			continue
		}
		if tooLarge != nil {
			return tooLarge
		}
	}
	if created > 0 && b.Objects.Limit > 0 && s.bounds.objects.Load()+created > b.Objects.Limit {
		return &BoundError{b.Objects, false}
	}
	return nil
}

// remeasure has the bytes measured beside the write, unless they were just now.
func (s *Store) remeasure() {
	if time.Now().UnixNano()-s.bounds.measured.Load() < int64(measureEvery) || s.bounds.measuring.Swap(true) {
		return
	}
	s.done.Go(func() {
		defer s.bounds.measuring.Store(false)
		if err := s.measureBytes(context.Background()); err != nil {
			s.opts.Log.Warn("a limit is not kept exactly", "error", err)
		}
	})
}

// counted notes a change that was committed.
func (b *bounds) counted(c *Change) {
	b.bytes.Add(int64(len(c.Record.Value))) // until it is measured again
	switch {
	case c.Resource.Group == InternalGroup:
	case c.Operation == dialect.Create:
		b.objects.Add(1)
	case c.Operation == dialect.Delete:
		b.objects.Add(-1)
	}
}
