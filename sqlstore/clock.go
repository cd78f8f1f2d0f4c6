package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/sqube/sqube/dialect"
)

// FirstTime is dialect.FirstTime.
var FirstTime = dialect.FirstTime

// clock compares this machine's clock with the time of the log, which follows the fastest clock of the servers that write it.
type clock struct {
	mu     sync.Mutex
	newest time.Time     // in the log
	behind time.Duration // how far this machine's clock was behind it when they were last compared

	// The log's time was log when this machine's monotonic clock showed at.
	log, at time.Time
	// This machine's clock was behind by more than clockTolerance from since to off, by the monotonic clock.
	since, off time.Time
}

// Differences of up to clockTolerance are normal. After clockRest without any, the next one is reported again.
const (
	clockTolerance = time.Second
	clockRest      = 10 * time.Minute
	clockHold      = time.Hour
)

// commitTime returns the time for a commit, in Unix milliseconds, when this machine's clock shows now. If that is behind the log's
// time, it is not known which of them is wrong. The log's time goes on as time passes, so that what is written after a moment does
// not count as written before it. After clockHold, or if the difference is small, it goes at half the speed until this machine's
// clock has caught up.
func (c *clock) commitTime(now time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	now = now.Round(0) // by the wall clock, not the monotonic one
	passed := at.Sub(c.at)
	log := c.log.Add(passed)
	if log.Sub(now) <= clockTolerance || at.Sub(c.off) <= clockRest && at.Sub(c.since) > clockHold {
		log = c.log.Add(passed / 2)
	}
	if log.Before(now) || log.Sub(now) > dialect.MaxAhead && now.After(dialect.FirstTime) {
		log = now
	}
	c.log, c.at = log, at
	return log.UnixMilli()
}

// compareClock compares the newest time in the log, in Unix milliseconds, with a time that this machine's clock showed later.
func (s *Store) compareClock(log int64, now time.Time) {
	c, newest, at := &s.clock, time.UnixMilli(log), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if newest.After(c.log.Add(at.Sub(c.at))) { // another server wrote it
		c.log, c.at = newest, at
	}
	if back := c.newest.Sub(newest); back > dialect.MaxAhead/2 { // less is the order of two looks
		s.opts.Log.Warn("the times in the log go back: a clock was ahead, and what was written meanwhile has times that were not reached yet",
			"from", c.newest.UTC(), "to", newest.UTC())
	}
	c.newest, c.behind = newest, max(0, newest.Sub(now))
	if c.behind <= clockTolerance {
		return
	}
	if at.Sub(c.off) > clockRest {
		c.since = at
		s.opts.Log.Warn("this machine's clock is behind the time of the log: it has stepped back, or differs from another server's; check both",
			"clock", now.UTC(), "log", newest.UTC(), "behind", c.behind)
	}
	c.off = at
}

// behindLog returns how far this machine's clock was behind the log's time when they were last compared.
func (c *clock) behindLog() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.behind
}

// readClock compares this machine's clock with what another server may have written.
func (s *Store) readClock(ctx context.Context) error {
	var log int64
	err := s.run(ctx, s.statement().setApart().add("SELECT written_at FROM counter"), func(row dialect.Row) error { return row.Scan(&log) })
	if err == nil && log > 0 {
		s.compareClock(log, s.opts.Now())
	}
	return err
}
