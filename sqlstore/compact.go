package sqlstore

import (
	"context"
	"time"

	"github.com/sqube/sqube/dialect"
)

// A batch of compaction removes compactBatch rows, then leaves the database to others for compactPause. Shrinking may take longer
// than other accesses, since it blocks nothing.
const (
	compactBatch  = 500
	compactPause  = 20 * time.Millisecond
	shrinkTimeout = 10 * time.Minute
	// compactLeast is how many revisions are compacted at once at least, unless that takes more than another retention, or two if nothing
	// is written: an idle cluster writes little, and removing little at a time would be half of it. Together with a commit, it dirties
	// fewer pages of the files.
	compactLeast = 200
)

// compact keeps removing what was replaced longer ago than the retention, and what exceeds RetentionRows.
//
//	remember (now, revision) ─► the newest remembered one that is older than
//	the retention, or the one before which there are too many rows ─► no further
//	than the archive is ─► remove in batches what was replaced up to it ─► shrink
//	─► measure
//
// Times are kept in the process, so after a start nothing is removed for one retention, and jumps of the clock do no harm.
func (s *Store) compact(ctx context.Context) {
	type mark struct {
		when     time.Time
		revision int64
	}
	var marks []mark
	const unmeasured = -1
	var old, target, done, measured int64 = 0, 0, 0, unmeasured // revisions; old is that of what is old enough
	var due int64                                               // the target when it began to lag
	last := time.Now()                                          // when versions were removed
	var forgot time.Time                                        // when the oldest history was
	failing := ""                                               // the last failure logged
	for more := true; more; more = s.pause(ctx, s.opts.CompactInterval) {
		now, newest := time.Now(), s.hub.at() // monotonic, unlike perhaps opts.Now
		marks = append(marks, mark{now, newest})
		for len(marks) > 0 && now.Sub(marks[0].when) >= s.opts.Retention {
			old, marks = marks[0].revision, marks[1:]
		}
		s.outlived.Raise(old)
		rested := now.Sub(last)
		if old-done >= s.opts.compactLeast || rested >= 2*s.opts.Retention ||
			rested >= s.opts.Retention && s.wroteSince(now.Add(-s.opts.CompactInterval)) {
			target = max(target, old)
		}
		if newest == measured && target <= done && !s.full.Load() && !s.unerased.Load() {
			// An idle cluster writes nothing.
			if s.alone && newest <= done && !s.untilCommit(ctx) {
				return
			}
			continue
		}
		surplus, err := s.surplus(ctx)
		surplus = min(surplus, newest)
		target = max(target, surplus)
		upTo := s.archived(target, surplus)
		if err == nil && target > done && s.size.began(now) {
			due = target
		}
		if err == nil && upTo > done {
			err = s.Compact(ctx, upTo)
			last = now
		}
		if err == nil && (last.Equal(now) || now.Sub(forgot) >= forgetInterval || s.full.Load()) {
			err = s.forget(ctx)
			forgot = now
		}
		if err == nil {
			done = max(done, upTo)
			if done >= due { // only the process that writes the archive reaches each target
				s.size.caughtUp()
			}
			failing = ""
			if last.Equal(now) || s.unerased.Load() {
				s.eraseRest(ctx)
			}
		} else if ctx.Err() == nil && err.Error() != failing {
			failing = err.Error()
			s.opts.Log.Error("compaction failed; retrying", "error", err)
		}
		measured = unmeasured
		if s.measure(ctx) {
			measured = newest
		}
	}
}

// untilCommit waits until a commit was tried, or returns false if the store closes first.
func (s *Store) untilCommit(ctx context.Context) bool {
	select {
	case <-s.attempted:
		return true
	case <-ctx.Done():
		return false
	}
}

// wroteSince reports whether this process has committed something since a moment.
func (s *Store) wroteSince(moment time.Time) bool {
	wrote := s.wrote.Load()
	return wrote != nil && !wrote.Before(moment)
}

// surplus returns the revision up to which versions must be removed so that no more than RetentionRows remain; 0 for none.
func (s *Store) surplus(ctx context.Context) (revision int64, err error) {
	if s.opts.RetentionRows == 0 {
		return 0, nil
	}
	b := s.statement().setApart()
	b.add("SELECT replaced_by FROM log WHERE replaced_by IS NOT NULL ORDER BY replaced_by DESC LIMIT 1 OFFSET " + b.arg(s.opts.RetentionRows))
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&revision) })
	return revision, err
}

// Compact removes all versions that were replaced at or before revision upTo. From then on, reads and watches at earlier
// revisions fail with ErrCompacted. It returns ErrFuture if there is no such revision yet.
func (s *Store) Compact(ctx context.Context, upTo int64) error {
	at, err := s.positionOfLog(ctx)
	if err == nil && upTo > at.Revision { // held rows may have it
		if err = s.settle(ctx); err == nil {
			at, err = s.positionOfLog(ctx)
		}
	}
	if err != nil {
		return err
	}
	if upTo > at.Revision {
		return ErrFuture
	}
	s.compacted.Raise(upTo)
	err = s.repeat(ctx, s.opts.Timeout, func(ctx context.Context) (bool, error) {
		began := time.Now()
		n, err := s.compactBatch(ctx, upTo)
		if n > 0 {
			s.size.removed(n)
			s.opts.OnBatch(time.Since(began))
		}
		return n > 0, err
	})
	if err != nil {
		return err
	}
	return s.repeat(ctx, shrinkTimeout, s.engine.Shrink)
}

// repeat calls step, each time with a timeout, until there is no more to do. It pauses in between.
func (s *Store) repeat(ctx context.Context, timeout time.Duration, step func(context.Context) (more bool, err error)) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		more, err := step(bounded)
		cancel()
		if err != nil || !more {
			return err
		}
		if !s.pause(ctx, compactPause) {
			return ctx.Err()
		}
	}
}
