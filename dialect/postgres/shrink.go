package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// shrinking is how far Shrink is.
//
// Autovacuum looks once a minute at the most, and no vacuum gives back a page
// that holds a row, or what an index has grown to. So after many removals it goes
//
//	vacuum ─► rewrite rows, which puts them where the vacuum found room first, at
//	the beginning ─► vacuum, which cuts off the end ─► rebuild the indexes
//
// as far as the log is much larger than its rows. It needs no more than owning
// the table. Reads and commits wait for the cut, a moment, and for each rewrite
// as for one more commit. Where several processes do it at once they do it
// twice, or find it done.
type shrinking struct {
	refused bool      // the server has no such statements, or not for this user
	rest    time.Time // until when it is left to autovacuum
	again   bool      // it was too large in the end
	under   bool      // rows are being rewritten:
	pages   pageRows  // those on the last pages, and
	large   largeRows // those with values beside the table
	indexes int64     // how many bytes these had when they were new
}

const (
	// So many dead rows, and a part of all rows, are worth a vacuum.
	deadRows, deadShare = 1000, 5
	// vacuumShare bounds the time that vacuum takes to a part of all time.
	vacuumShare = 10
	// giveUp is how long to leave it where it did not help.
	giveUp = 10 * time.Minute
	// rebuildTimeout bounds for how long the indexes wait for transactions to end.
	rebuildTimeout = time.Minute
)

// Shrink implements dialect.Engine.
func (e *Engine) Shrink(ctx context.Context) (bool, error) {
	if e.shrinking.refused {
		return false, nil
	}
	more, err := e.shrink(ctx)
	var answer *pgconn.PgError
	switch {
	case err == nil:
		return more, nil
	case errors.As(err, &answer) && (strings.HasPrefix(answer.Code, "42") || strings.HasPrefix(answer.Code, "0A")):
		// No Postgres but its kin, or a table of somebody else: room is given back in other ways.
		e.shrinking.refused = true
		return false, nil
	}
	e.shrinking.under = false
	return false, failure(ctx, "vacuum", err)
}

func (e *Engine) shrink(ctx context.Context) (more bool, err error) {
	s := &e.shrinking
	if s.under {
		ids, err := s.pages.next(ctx, e.writer)
		if err == nil && ids == nil {
			ids, err = s.large.next(ctx, e.writer)
		}
		if err != nil || ids != nil {
			return true, errors.Join(err, e.rewrite(ctx, ids))
		}
	} else if worth, err := e.worthVacuum(ctx); err != nil || !worth {
		return false, err
	}
	if err := e.vacuum(ctx); err != nil {
		return false, err
	}
	x, err := e.extent(ctx)
	if err != nil {
		return false, err
	}
	s.again = x.tableTooLarge() || x.toastTooLarge()
	switch {
	case !s.under && s.again:
		s.under, s.pages, s.large = true, x.pageRows(), x.largeRows()
		return true, nil
	case s.again:
		s.rest = time.Now().Add(giveUp)
	}
	s.under = false
	return false, e.rebuild(ctx, x)
}

// worthVacuum says whether much was removed that no vacuum has seen, and whether one would help.
func (e *Engine) worthVacuum(ctx context.Context) (bool, error) {
	if time.Now().Before(e.shrinking.rest) {
		return false, nil
	}
	var dead, live int64
	var held bool
	err := e.writer.QueryRow(ctx, `
SELECT n_dead_tup, n_live_tup,
       EXISTS (SELECT 1 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND xact_start < now() - interval '5 seconds' AND backend_type <> 'autovacuum worker')
FROM pg_stat_user_tables WHERE relid = 'log'::regclass`).Scan(&dead, &live, &held)
	return !held && (e.shrinking.again || dead >= deadRows+live/deadShare), err
}

// vacuum has the room of removed rows used again, and cuts off what is free at the end. Where somebody else is at it, it
// is left to them.
func (e *Engine) vacuum(ctx context.Context) error {
	began := time.Now()
	_, err := e.writer.Exec(ctx, "VACUUM (ANALYZE, SKIP_LOCKED) log")
	e.shrinking.rest = time.Now().Add(vacuumShare * time.Since(began))
	return err
}

// rebuild makes the indexes anew where they have become far too large. Nobody waits for that, but it waits for every
// transaction that has begun before; what is left of one that was given up goes first.
func (e *Engine) rebuild(ctx context.Context, x extent) error {
	if !x.indexesTooLarge(e.shrinking.indexes) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	for _, name := range x.Invalid {
		if _, err := e.writer.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+name); err != nil {
			return err
		}
	}
	if _, err := e.writer.Exec(ctx, "REINDEX TABLE CONCURRENTLY log"); err != nil {
		return err
	}
	x, err := e.extent(ctx)
	e.shrinking.indexes = x.Indexes
	return err
}
