package sqlstore

import (
	"context"
	"sync"
	"time"
)

// tailLag measures how long the tail has been behind. It keeps one revision that the tail has to reach, and since when. When the
// tail has reached it, the next one is taken, so a tail that keeps up with steady writers is never far behind.
type tailLag struct {
	mu       sync.Mutex
	revision int64
	heard    time.Time
}

// hear records that the log has reached newest while the tail has read up to at.
func (l *tailLag) hear(newest, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if newest > at && at >= l.revision {
		l.revision, l.heard = newest, time.Now()
	}
}

// since returns how long the tail, now at the revision at, has been behind.
func (l *tailLag) since(at int64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at >= l.revision {
		return 0
	}
	return time.Since(l.heard)
}

// tail reads from the log what this process did not write, and what it wrote without knowing whether that succeeded. On an engine
// with other writers, it is woken by their notifications, or by a poll if those fail; otherwise only by the committer.
func (s *Store) tail(ctx context.Context) {
	notifications := s.engine.Notifications()
	var poll <-chan time.Time
	if notifications != nil {
		ticker := time.NewTicker(s.opts.PollInterval)
		defer ticker.Stop()
		poll = ticker.C
	}
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case newest := <-notifications:
			if !s.isForeign(newest) {
				continue
			}
		case <-poll:
			// While nothing is new, a poll reads one row: the counter.
			at, err := s.Position(ctx)
			if err == nil && at.Revision <= s.hub.at() {
				continue
			}
			s.tailLag.hear(at.Revision, s.hub.at())
		case <-s.hub.behind:
		}
		ambiguous := s.ambiguous.Load()
		err := s.catchUp(ctx)
		if err == nil {
			s.resolved.Store(ambiguous)
		}
		switch {
		case err == nil && failing:
			failing = false
			s.opts.Log.Info("reading the log works again")
		case err != nil && ctx.Err() == nil:
			if !failing {
				failing = true
				s.opts.Log.Error("reading the log failed; watches wait until it works again", "error", err)
			}
			wake(s.hub.behind)
			s.pause(ctx, min(s.opts.PollInterval, time.Second))
		}
	}
}

// isForeign reports whether to read the log because of a notification of revision newest. Usually that is our own commit, whose
// rows the committer is about to publish; if there are other rows too, the committer wakes the tail.
func (s *Store) isForeign(newest int64) bool {
	if newest == 0 {
		return true
	}
	// A reader may have read the counter before the tail was notified.
	s.heard.Raise(newest)
	s.tailLag.hear(newest, s.hub.at())
	return !s.committing.Load() && newest > s.hub.at()
}

// catchUp reads the log up to its end.
//
//	position ─► rows up to it ─► position ─► rows up to it …
//
// Reading the rows returns everything up to the position read before, unless some of it has been compacted, which the position
// read afterwards shows. What is read ends with the end of a commit, so nobody is shown a part of a transaction.
func (s *Store) catchUp(ctx context.Context) error {
	at, err := s.positionOfLog(ctx)
	for err == nil {
		from := s.hub.at()
		if at.Revision <= from {
			return nil
		}
		s.tailLag.hear(at.Revision, from)
		changes, to, err := s.wholeChanges(ctx, from, at.Revision)
		if err != nil {
			return err
		}
		if at, err = s.positionOfLog(ctx); err != nil {
			return err
		}
		if from < at.Compacted {
			s.opts.Log.Warn("the log was compacted before it was read; ending all watches", "read", from, "compacted", at.Compacted)
			s.hub.skip(at.Revision)
			continue
		}
		s.hub.offer(from, to, changes)
	}
	return err
}
