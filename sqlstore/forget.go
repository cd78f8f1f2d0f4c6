package sqlstore

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// forgetBatch is how many blocks of history are removed at once, and forgetInterval how often to look for old ones if no versions are moved
// there.
const (
	forgetBatch    = 500
	forgetInterval = 10 * time.Minute
)

// compactBatch removes or moves a batch of versions. If that fills the disk, history gives way, all of it if need be.
func (s *Store) compactBatch(ctx context.Context, upTo int64) (n int, err error) {
	if s.opts.History <= 0 {
		return s.engine.Compact(ctx, upTo, compactBatch, nil)
	}
	pack, grown := history.Pack(s.opts.HistoryThin), int64(0)
	n, err = s.engine.Compact(ctx, upTo, compactBatch, func(rows []*dialect.Replaced, last []*dialect.Block) ([]*dialect.Block, error) {
		blocks, err := pack(rows, last)
		for _, b := range blocks {
			grown += b.Bytes()
		}
		return blocks, err
	})
	if errors.Is(err, dialect.ErrFull) {
		return s.makeRoom(ctx, upTo)
	}
	if all := s.grown.Add(grown); err == nil && s.opts.HistoryBytes > 0 && all > s.opts.HistoryBytes/4 {
		err = s.forget(ctx)
	}
	return n, err
}

// makeRoom has history give way on a full disk: first half of its values, then the oldest of it, then what is leaving the log. It returns how
// much it has removed, 0 if there is nothing left.
func (s *Store) makeRoom(ctx context.Context, upTo int64) (n int, err error) {
	h, _, err := s.measureHistory(ctx)
	if err == nil {
		n, err = s.giveUp(ctx, h.Bytes/2)
	}
	if (err == nil || errors.Is(err, dialect.ErrFull)) && n == 0 {
		n, err = s.engine.Forget(ctx, math.MaxInt64, forgetBatch)
	}
	if err == nil && n == 0 {
		n, err = s.engine.Compact(ctx, upTo, compactBatch, nil)
	}
	return n, err
}

// forget removes what was replaced longer ago than Options.History, and has the rest give way if it exceeds HistoryBytes. A block is removed
// as a whole, with its last version, so more than History may be kept for a while.
func (s *Store) forget(ctx context.Context) error {
	s.grown.Store(0)
	h, old, err := s.measureHistory(ctx)
	if err == nil && s.opts.History <= 0 {
		old = math.MaxInt64
	}
	limit := s.limit(h.Bytes)
	tooMuch := limit > 0 && h.Bytes > limit
	if err != nil || h.Bytes == 0 || old == 0 && !tooMuch {
		return err
	}
	if old > 0 {
		err = s.repeat(ctx, s.opts.Timeout, func(ctx context.Context) (bool, error) {
			n, err := s.engine.Forget(ctx, old, forgetBatch)
			return n > 0, err
		})
	}
	if err == nil && tooMuch {
		_, err = s.giveUp(ctx, limit)
	}
	if err == nil {
		_, _, err = s.measureHistory(ctx)
	}
	return err
}

// limit returns how many bytes of history may remain, given how many there are; 0 for no limit. If the disk is full, objects come first.
func (s *Store) limit(bytes int64) int64 {
	if s.full.Load() {
		return max(1, bytes/2)
	}
	return s.opts.HistoryBytes
}

// HistoryStats describes the history of a log.
type HistoryStats struct {
	// From is the revision from which on it is known who changed what, and when, and ValuesFrom the one from which on all values are kept too.
	From, ValuesFrom int64
	// ValuesAt is when ValuesFrom was written, in Unix milliseconds, 0 if no value was given up.
	ValuesAt int64
	// Bytes is roughly how much space the packed versions take, in so many blocks, of which so many have given up their values.
	Bytes, Blocks, Bare int64
	// GaveWay are those who had most, and so gave up most values, or all that was known of some of their changes; the first ones.
	GaveWay []history.GaveWay
}

// maxGaveWay is how many of those who gave way are named.
const maxGaveWay = 10

// measureHistory measures history for Stats. It also returns the revision up to which it is older than Options.History.
func (s *Store) measureHistory(ctx context.Context) (h HistoryStats, old int64, err error) {
	b := s.statement().setApart()
	before := s.opts.Now().Add(-s.opts.History).UnixMilli()
	b.add("SELECT (SELECT " + history.From + " FROM counter), count(*), coalesce(sum(bytes), 0), coalesce(max(CASE WHEN until_at <= " + b.arg(before) + " THEN until END), 0) FROM past")
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&h.From, &h.Blocks, &h.Bytes, &old) })
	if err == nil {
		h.ValuesFrom = h.From
		err = history.EachGaveWay(ctx, settled{s.engine, s}, func(g history.GaveWay) {
			h.Bare, h.ValuesFrom, h.ValuesAt = h.Bare+g.Blocks, max(h.ValuesFrom, g.Until), max(h.ValuesAt, g.UntilAt)
			if len(h.GaveWay) < maxGaveWay {
				h.GaveWay = append(h.GaveWay, g)
			}
		})
	}
	if err == nil {
		before := int64(0)
		s.size.update(func() { before, s.size.stats.History = s.size.stats.History.Bare, h })
		if before == 0 && h.Bare > 0 {
			s.opts.Log.Warn("history has no room for all values: older ones are given up, of those who wrote most", "most", h.GaveWay[0].String(), "limit", s.opts.HistoryBytes)
		}
	}
	return h, old, err
}
