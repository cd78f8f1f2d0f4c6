package sqlstore

import (
	"context"
	"sync"
	"time"
)

// tailLag is a revision that the tail has heard of, and when. It hears of the next one when it has read up to that, so a tail
// that follows steady writers is never far behind.
type tailLag struct {
	mu       sync.Mutex
	revision int64
	heard    time.Time
}

// hear notes that the log has reached newest while the tail has read it up to at.
func (u *tailLag) hear(newest, at int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if newest > at && at >= u.revision {
		u.revision, u.heard = newest, time.Now()
	}
}

// since is for how long the tail has not reached what it heard of, now that it is at the given revision.
func (u *tailLag) since(at int64) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if at >= u.revision {
		return 0
	}
	return time.Since(u.heard)
}

// tail reads from the log what this process did not write itself, and what it
// wrote without learning so. On an engine with other writers it is woken by
// their notifications and, should those fail, by a poll; otherwise only by
// the committer.
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
			// A poll costs one row, the counter's, while nothing is new.
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
			s.hub.wakeTail()
			s.pause(ctx, min(s.opts.PollInterval, time.Second))
		}
	}
}

// isForeign says whether to read the log because of the notification of revision
// newest. Mostly that is our own commit, whose rows the committer is about to
// hand out itself; should there be others, it then asks for them.
func (s *Store) isForeign(newest int64) bool {
	if newest == 0 {
		return true
	}
	s.heard.Store(newest)
	s.tailLag.hear(newest, s.hub.at())
	return !s.committing.Load() && newest > s.hub.at()
}

// catchUp reads the log up to its end.
//
//	position ─► rows up to it ─► position ─► rows up to it …
//
// Whatever had become visible when the position was read, the read of rows
// behind it returns, unless it was forgotten by then; the position behind that
// tells.
func (s *Store) catchUp(ctx context.Context) error {
	at, err := s.Position(ctx)
	for err == nil {
		from := s.hub.at()
		if at.Revision <= from {
			return nil
		}
		s.tailLag.hear(at.Revision, from)
		changes, to, err := s.changes(ctx, from, at.Revision, nil, maxChanges, maxChangeBytes)
		if err != nil {
			return err
		}
		if at, err = s.Position(ctx); err != nil {
			return err
		}
		if from < at.Compacted {
			s.opts.Log.Warn("the log was compacted before it was read; all watches end", "read", from, "compacted", at.Compacted)
			s.hub.skip(at.Revision)
			continue
		}
		s.hub.offer(from, to, changes)
	}
	return err
}
