package sqlstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sqube/sqube/dialect"
)

// Stats describes the size and health of a log.
type Stats struct {
	dialect.Position
	// Live and Replaced count the rows: those that are current objects, and those kept for watches and lists at older revisions.
	Live, Replaced int64
	Space          dialect.Space
	// UnsafeSettings are those of dialect.Engine.
	UnsafeSettings []string
	History        HistoryStats
	// Cached is how many bytes the live rows in memory take.
	Cached int64
	// Removed is how many rows this process has removed.
	Removed int64
	// Lag is for how long there have been rows that should be gone.
	Lag time.Duration
	// Archived is the revision up to which the archive is complete, 0 if there is none or another process writes it.
	// ArchiveFailing is for how long it has been failing.
	Archived       int64
	ArchiveFailing time.Duration
	// Unreachable is for how long the database has not answered.
	Unreachable time.Duration
	// TailLag is for how long the log has had revisions that watches and cached reads have not seen.
	TailLag time.Duration
	// Unnotified is for how long other processes have not been notified of this one's writes, so that they see them later.
	Unnotified time.Duration
	// ClockBehind is how far this machine's clock is behind the log's time, which no row is written earlier than.
	ClockBehind time.Duration
	// Failures counts as Store.Failures does.
	Failures uint64
	// Watches is how many bytes watches hold, SlowWatches how many watches were ended because that was too much.
	Watches, SlowWatches int64
}

// size has the data for Stats.
type size struct {
	mu    sync.Mutex
	stats Stats
	due   time.Time // since when compaction has been running or failing; zero when it is done

	failing    time.Time // since when the archive has been failing; zero if it is not
	unnotified time.Time // since when others have not been notified; zero if they are

	recount time.Time // when the rows may be counted again; used by measure only
}

func (z *size) removed(n int) { z.update(func() { z.stats.Removed += int64(n) }) }
func (z *size) caughtUp()     { z.update(func() { z.due = time.Time{} }) }

// began returns false if compaction has been running or failing already.
func (z *size) began(now time.Time) (first bool) {
	z.update(func() {
		if first = z.due.IsZero(); first {
			z.due = now
		}
	})
	return first
}

func (z *size) update(change func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	change()
}

// Stats returns the size of the log, without a database access: rows and space are those after the last compaction, or after the
// start.
func (s *Store) Stats() Stats {
	s.size.mu.Lock()
	defer s.size.mu.Unlock()
	stats := s.size.stats
	stats.Revision, stats.Cached = s.hub.at(), s.cache.held()
	stats.ClockBehind = s.clock.behindLog()
	stats.Watches, stats.SlowWatches = s.memory.held.Load(), s.memory.slow.Load()
	stats.Unreachable, stats.TailLag, stats.Failures = s.failures.silence(), s.tailLag.since(stats.Revision), s.Failures()
	stats.Lag, stats.ArchiveFailing, stats.Unnotified = lasting(s.size.due), lasting(s.size.failing), lasting(s.size.unnotified)
	return stats
}

// lasting returns the time since a moment, 0 if that is zero.
func lasting(since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return time.Since(since)
}

// notified records whether other processes were notified of a commit. It logs when that changes.
func (s *Store) notified(failure error) {
	var before time.Time
	s.size.update(func() {
		switch before = s.size.unnotified; {
		case failure == nil:
			s.size.unnotified = time.Time{}
		case before.IsZero():
			s.size.unnotified = time.Now()
		}
	})
	switch {
	case failure != nil && before.IsZero():
		s.opts.Log.Warn("other servers can't be notified of writes, and see them up to a second late", "error", failure)
	case failure == nil && !before.IsZero():
		s.opts.Log.Info("other servers are notified of writes again")
	}
}

// measure measures the log, and warns about what keeps it from shrinking, once until that changes. It returns false to be called
// again even if nothing is written meanwhile.
func (s *Store) measure(ctx context.Context) bool {
	at, err := s.Position(ctx)
	var space dialect.Space
	if err == nil {
		bounded, cancel := s.bounded(ctx)
		space, err = s.engine.Space(bounded)
		cancel()
	}
	var unsafe []string
	if err == nil {
		bounded, cancel := s.bounded(ctx)
		unsafe, err = s.engine.UnsafeSettings(bounded)
		cancel()
	}
	if err == nil {
		var before Stats
		s.size.update(func() {
			before = s.size.stats
			s.size.stats.Position, s.size.stats.Space, s.size.stats.UnsafeSettings = at, space, unsafe
		})
		s.warn(before.Space.HeldBack, space.HeldBack, "the database can't reuse the space of removed rows, so it grows: ", "the database reuses the space of removed rows again")
		s.warn(before.UnsafeSettings, unsafe, "acknowledged writes may not survive: ", "the settings of the database no longer put acknowledged writes at risk")
		err = s.readClock(ctx)
	}
	if err == nil {
		var counted bool
		if counted, err = s.count(ctx); err == nil {
			return counted
		}
	}
	if ctx.Err() == nil {
		s.opts.Log.Warn("measuring the database failed; retrying", "error", err)
	}
	return false
}

// warn logs the causes of a trouble that there are now and were not before, or that there are none any more.
func (s *Store) warn(before, now []string, trouble, over string) {
	for _, cause := range now {
		if !slices.Contains(before, cause) {
			s.opts.Log.Warn(trouble + cause)
		}
	}
	if len(now) == 0 && len(before) > 0 {
		s.opts.Log.Info(over)
	}
}

// countShare limits the time spent counting rows to one in so many seconds: it scans an index, which may be long.
const countShare = 100

// count counts the rows, or returns false if it did so recently.
func (s *Store) count(ctx context.Context) (bool, error) {
	began := time.Now()
	if began.Before(s.size.recount) {
		return false, nil
	}
	var live, replaced int64
	b := s.statement().setApart().add("SELECT (SELECT count(*) FROM log WHERE replaced_by IS NULL), (SELECT count(*) FROM log WHERE replaced_by IS NOT NULL)")
	err := s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&live, &replaced) })
	s.size.recount = time.Now().Add(countShare * time.Since(began))
	if err != nil {
		return false, err
	}
	s.size.update(func() { s.size.stats.Live, s.size.stats.Replaced = live, replaced })
	return true, nil
}
