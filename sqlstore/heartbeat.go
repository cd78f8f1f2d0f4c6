package sqlstore

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqube/sqube/dialect"
)

// A write of a heartbeat (Write.Heartbeat) is visible and acknowledged at once, like any other, but its row is committed together with
// that of the next other write, or after Options.HeartbeatInterval:
//
//	heartbeat ──► hub ──► cache, subscriptions, answer
//	    │
//	    ▼
//	   held ──► with the next group, before a read of the log, after the interval, or at the end ──► log
//
// Held rows have the revisions that follow the log's, so whatever is committed next includes them, and the log is complete up to its
// counter. What this process reads from the log it commits first; so only other processes can see a log without the held rows. If this
// process is killed, held rows are lost and their revisions are never used again: see dialect.MaxHeld.
//
// Of the held rows of one object, only the newest is stored, unless a read of the log asks for them: see superseded.
//
// Only a process that alone writes the log can hold rows.

// held are the rows that are published and not committed.
type held struct {
	writes []*pending // in order, used by the committer alone
	first  int64      // the revision of the first of them
	due    *time.Timer
	unsure bool  // whether they are committed: an attempt seemed to fail
	failed error // why the last attempt did
	lost   bool  // the database refuses them: they get no rows

	count atomic.Int64
	// settle asks the committer to commit them.
	settle chan chan error
	// ended is closed when there is no committer any more.
	ended chan struct{}
}

// last is the revision of the newest held row.
func (h *held) last() int64 { return h.first + int64(len(h.writes)) - 1 }

// init prepares h, which holds no rows.
func (h *held) init() {
	h.due, h.settle, h.ended = time.NewTimer(time.Hour), make(chan chan error), make(chan struct{})
	h.due.Stop()
}

func (h *held) clear() {
	h.writes, h.unsure, h.failed, h.lost = nil, false, nil, false
	h.count.Store(0)
	h.due.Stop()
}

// landed reports whether all held rows are in the log that ought to be.
func (h *held) landed(landed []bool) bool {
	for i, p := range h.writes {
		if landed[i] == p.row.Superseded {
			return false
		}
	}
	return true
}

// HoldsHeartbeats reports whether heartbeats are committed later than other writes.
func (s *Store) HoldsHeartbeats() bool { return s.holds }

// hold publishes and answers a group of heartbeats, and returns false if it must be committed instead.
func (s *Store) hold(group []*pending) bool {
	h := &s.held
	if !s.holds || s.failing || h.unsure || h.lost || s.ambiguous.Load() != s.resolved.Load() ||
		len(h.writes)+len(group) > dialect.MaxHeld || s.engine.InPlace(s.ctx) != nil {
		return false
	}
	for _, p := range group {
		if !p.row.Heartbeat || p.resource() != s.opts.HeartbeatResource || !s.cache.isLive(p.resource(), p.row.Key, p.row.Replaces) {
			return false
		}
	}
	for _, p := range group {
		if !s.cache.isLive(p.resource(), p.row.Key, p.row.Replaces) { // another one in the group was faster
			p.result <- outcome{err: ErrConflict}
			continue
		}
		before := s.hub.at()
		if len(h.writes) == 0 {
			h.first = before + 1
			h.due.Reset(s.opts.HeartbeatInterval)
		}
		h.writes = append(h.writes, p)
		h.count.Store(int64(len(h.writes)))
		s.hub.offer(before, before+1, []*Change{p.change(before + 1)})
		p.result <- outcome{revision: before + 1}
	}
	return true
}

// withHeld returns the held rows, if there are any, and those of a group. After a failure, it finds out first whether the held rows have
// been committed.
func (s *Store) withHeld(ctx context.Context, group []*pending) ([]*pending, error) {
	h := &s.held
	if h.unsure {
		at, err := s.positionOfLog(ctx)
		if err != nil {
			return nil, err
		}
		if at.Revision >= h.last() {
			h.clear()
		}
		h.unsure = false
	}
	if len(h.writes) == 0 {
		return group, nil
	}
	return append(slices.Clip(h.writes), group...), nil
}

// superseded are revisions of heartbeats that have no rows, as if they had been compacted. Subscriptions and the cache have got each of
// them before. In the log, the row before is followed by that of the newest heartbeat.
type superseded struct {
	newest dialect.Newest                // of those revisions
	kept   dialect.Newest                // the newest revision of a row that has replaced one that is not in the log
	lost   atomic.Pointer[dialect.Skips] // see lose
}

// lose declares that held rows with these revisions get no rows, though they were published. Only the last ones are remembered so; what is
// older counts as superseded.
func (s *superseded) lose(first, last int64) {
	if before := s.lost.Swap(&dialect.Skips{{After: first - 1, Until: last + 1}}); before != nil {
		until := (*before)[0].Until
		s.raise(until, until)
	}
}

// isLost reports whether readers have seen heartbeats of a resource at a revision that the database then refused.
func (s *Store) isLost(resource Resource, revision int64) bool {
	lost := s.superseded.lost.Load()
	return lost != nil && resource == s.opts.HeartbeatResource && lost.Has(revision)
}

func (s *superseded) raise(newest, kept int64) {
	s.newest.Raise(newest)
	s.kept.Raise(kept)
}

// supersede has only the newest of the held rows of each object stored. It declares first what can't be read any more.
func (s *Store) supersede() {
	h := &s.held
	for i, p := range h.writes {
		if p.row.Replaces < h.first {
			continue
		}
		before := &h.writes[p.row.Replaces-h.first].row
		s.superseded.raise(p.row.Replaces, h.first+int64(i))
		before.Superseded, p.row.Replaces = true, before.Replaces
	}
}

// readableAt is readable for a read of the log at q.Revision.
func (s *Store) readableAt(at dialect.Position, q Query) error {
	err := s.readable(at, q.Revision)
	if err == nil && (s.isLost(q.Resource, q.Revision) || q.Revision != 0 && q.Resource == s.opts.HeartbeatResource && q.Revision < s.superseded.kept.Load()) {
		err = ErrCompacted
	}
	return err
}

// heldRetry is when to commit held rows after that has failed.
const heldRetry = 5 * time.Second

// heldFailed records that the held rows, if there are any, may not have been committed.
func (s *Store) heldFailed(err error) {
	if h := &s.held; len(h.writes) > 0 {
		h.unsure, h.failed = true, err
		h.due.Reset(heldRetry)
	}
}

// commitApart commits the held rows and then a group, since the database has refused them together: one of the held rows may be at fault,
// which must not make every later write fail.
func (s *Store) commitApart(group []*pending, err error) {
	h := &s.held
	if len(group) > 0 {
		s.commitGroup(nil)
		if len(h.writes) > 0 {
			s.fail(group, h.failed)
			return
		}
		s.commitGroup(group)
		return
	}
	if h.lost {
		s.fail(nil, err)
		return
	}
	s.opts.Log.Error("the database refuses heartbeats, which are lost; ending all watches", "revision", h.first, "heartbeats", len(h.writes), "error", err)
	h.lost = true
	for _, p := range h.writes {
		p.row.Superseded = true // its revision was published, and must not be that of another change
	}
	s.superseded.lose(h.first, h.last())
	h.writes = append(h.writes, h.writes[0]) // one revision more: who has seen what is lost must list again, and who lists after that must not
	s.commitGroup(nil)
}

func (s *Store) commitHeld() error {
	if len(s.held.writes) > 0 {
		s.commitGroup(nil)
	}
	return s.held.failed
}

// settle commits the held rows.
func (s *Store) settle(ctx context.Context) error {
	if s.held.count.Load() == 0 {
		return nil
	}
	done := make(chan error, 1)
	select {
	case s.held.settle <- done:
	case <-s.held.ended:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
