package sqlstore

import (
	"context"
	"time"
)

// One batch of compaction removes so many rows, then leaves the database to
// others for so long.
const (
	compactBatch = 500
	compactPause = 20 * time.Millisecond
)

// compact forgets, all the time, what was replaced longer ago than the
// retention.
//
//	remember (now, revision) ─► the newest remembered one that is older than
//	the retention ─► remove in batches what was replaced up to it ─► shrink
//
// Times are remembered in the process: after a start nothing is forgotten for
// one retention. That also makes a clock that jumps harmless.
func (s *Store) compact(ctx context.Context) {
	type mark struct {
		when     time.Time
		revision int64
	}
	var marks []mark
	var done int64
	for s.pause(ctx, s.opts.CompactInterval) {
		now := time.Now() // monotonic, unlike what opts.Now may be
		marks = append(marks, mark{now, s.hub.at()})
		var target int64
		for len(marks) > 0 && now.Sub(marks[0].when) >= s.opts.Retention {
			target, marks = marks[0].revision, marks[1:]
		}
		if target <= done {
			continue // an idle cluster writes nothing
		}
		if err := s.Compact(ctx, target); err == nil {
			done = target
		} else if ctx.Err() == nil {
			s.opts.Log.Error("compaction failed; trying again", "error", err)
		}
	}
}

// Compact forgets all versions that were replaced at or before revision upTo.
// Reads and watches at earlier revisions fail with ErrCompacted from then on.
// It returns ErrFuture when there is no such revision yet.
func (s *Store) Compact(ctx context.Context, upTo int64) error {
	at, err := s.Revision(ctx)
	if err != nil {
		return err
	}
	if upTo > at.Current {
		return ErrFuture
	}
	for {
		bounded, cancel := s.bounded(ctx)
		n, err := s.engine.Compact(bounded, upTo, compactBatch)
		cancel()
		if err != nil {
			return err
		}
		if n < compactBatch {
			break
		}
		if !s.pause(ctx, compactPause) {
			return ctx.Err()
		}
	}
	for {
		bounded, cancel := s.bounded(ctx)
		more, err := s.engine.Shrink(bounded)
		cancel()
		if err != nil || !more {
			return err
		}
		if !s.pause(ctx, compactPause) {
			return ctx.Err()
		}
	}
}
