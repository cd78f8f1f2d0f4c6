package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// shrinking is what Shrink remembers.
type shrinking struct {
	refused  bool          // the server has no such statements, or not for this user
	rest     time.Time     // until when it is left to autovacuum
	patience time.Duration // for how long, where the log was still too large in the end; 0 where it was not
	indexes  int64         // how many bytes the indexes had when they were new
}

const (
	// So many dead rows, and a part of all rows, are worth a vacuum.
	deadRows, deadShare = 1000, 5
	// vacuumShare bounds the time that vacuum takes to a part of all time.
	vacuumShare = 10
	// Where it did not help it is tried again, later each time.
	minPatience, maxPatience = 5 * time.Second, 10 * time.Minute
	// rebuildTimeout bounds for how long the indexes wait for transactions to end.
	rebuildTimeout = time.Minute
	// shrinkLock is the advisory lock of who shrinks.
	shrinkLock int64 = 0x7371756265 // "sqube"
)

// Shrink implements dialect.Engine, all of it at once and in one process at a time.
func (e *Engine) Shrink(ctx context.Context) (more bool, err error) {
	if e.shrinking.refused || time.Now().Before(e.shrinking.rest) {
		return false, nil
	}
	worth, err := e.worthVacuum(ctx)
	if err == nil && worth {
		err = e.exclusively(ctx, func(conn *pgx.Conn) error { return e.shrink(ctx, conn) })
	}
	switch {
	case err == nil, serializationFailure(err): // in which two processes met that a pooler keeps from locking
		return false, nil
	case unsupported(err): // or the table is somebody else's
		e.shrinking.refused = true
		return false, nil
	}
	return false, failure(ctx, "vacuum", err)
}

// exclusively calls do, unless another process is at it, with a connection on which statements may take their time.
func (e *Engine) exclusively(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, e.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if !e.capabilities.pooled {
		const limits = "'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout'"
		var mine bool
		err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1), (SELECT count(set_config(name, '0', false)) FROM pg_settings WHERE name IN ("+limits+"))",
			shrinkLock).Scan(&mine, nil)
		if err != nil || !mine {
			return err
		}
	}
	return do(conn)
}

// hindered says whether a transaction, of whatever kind, would keep vacuum from removing rows or cutting off pages, or
// the indexes waiting.
const hindered = `
  EXISTS (SELECT 1 FROM pg_stat_activity
          WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start < now() - interval '5 seconds')
  OR EXISTS (SELECT 1 FROM pg_prepared_xacts WHERE database = current_database())
  OR EXISTS (SELECT 1 FROM pg_replication_slots WHERE age(xmin) > 1000)`

// worthVacuum says whether much was removed that no vacuum has seen, and one would help.
func (e *Engine) worthVacuum(ctx context.Context) (worth bool, err error) {
	const query = "SELECT ($1 OR n_dead_tup >= $2 + n_live_tup / $3) AND NOT (" + hindered + ") FROM pg_stat_user_tables WHERE relid = 'log'::regclass"
	err = e.writer.QueryRow(ctx, query, e.shrinking.patience > 0, deadRows, deadShare).Scan(&worth)
	return worth, err
}

// shrink does what autovacuum does not, which looks once a minute at the most, while no vacuum gives back a page that
// holds a row, or what an index has grown to:
//
//	vacuum ─► rewrite rows, which puts them where the vacuum found room first, at the beginning ─► vacuum, which cuts
//	off the end ─► rebuild the indexes
//
// as far as the log is much larger than its rows. It needs no more than owning the table. Reads and commits wait for the
// cut, a moment, and for each rewrite as for one more commit.
func (e *Engine) shrink(ctx context.Context, conn *pgx.Conn) error {
	x, err := e.vacuum(ctx, conn)
	for helps := true; err == nil && helps && x.tooLarge(); {
		before := x.Table + x.Toast
		if err = e.rewriteAll(ctx, x); err == nil {
			x, err = e.vacuum(ctx, conn) // which stops to cut when somebody waits
		}
		helps = x.Table+x.Toast < before
	}
	if err != nil {
		return err
	}
	if x.tooLarge() { // somebody reads what is gone
		e.shrinking.patience = min(max(2*e.shrinking.patience, minPatience), maxPatience)
		e.shrinking.rest = time.Now().Add(e.shrinking.patience)
	} else {
		e.shrinking.patience = 0
	}
	return e.rebuild(ctx, conn, x)
}

// vacuum has the room of removed rows used again, cuts off what is free at the end, and returns what there is then. By
// itself it spares the indexes where few pages are concerned, which then can't be cut off.
func (e *Engine) vacuum(ctx context.Context, conn *pgx.Conn) (x extent, err error) {
	began := time.Now()
	if _, err = conn.Exec(ctx, "VACUUM (ANALYZE, INDEX_CLEANUP ON) log"); err == nil {
		x, err = readExtent(ctx, conn)
	}
	e.shrinking.rest = time.Now().Add(vacuumShare * time.Since(began))
	return x, err
}

// rewriteAll rewrites the rows that keep the log large.
func (e *Engine) rewriteAll(ctx context.Context, x extent) error {
	last, large := x.lastRows(), x.largeRows()
	for {
		ids, err := last.next(ctx, e.writer)
		if err == nil && len(ids) == 0 {
			ids, err = large.next(ctx, e.writer)
		}
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := e.rewrite(ctx, ids); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rewritePause):
		}
	}
}

// rebuild makes the indexes anew where they have become far too large. Nobody waits for that, but it waits for every
// transaction that has begun before; what is left of one that was given up goes first.
func (e *Engine) rebuild(ctx context.Context, conn *pgx.Conn, x extent) error {
	if !x.indexesTooLarge(e.shrinking.indexes) {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	statements := []string{"REINDEX TABLE CONCURRENTLY log"}
	for _, name := range x.Invalid {
		statements = slices.Insert(statements, 0, "DROP INDEX CONCURRENTLY IF EXISTS "+name)
	}
	for _, statement := range statements {
		_, err := conn.Exec(bounded, statement)
		if bounded.Err() != nil {
			e.shrinking.rest = time.Now().Add(maxPatience)
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	x, err := readExtent(ctx, conn)
	e.shrinking.indexes = x.Indexes
	return err
}
