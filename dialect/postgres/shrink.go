package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
	shrinkLock = 0x7371756265 // "sqube"
)

// Shrink implements dialect.Engine, all of it at once and in one process at a time.
func (e *Engine) Shrink(ctx context.Context) (more bool, err error) {
	if e.shrinking.refused || time.Now().Before(e.shrinking.rest) {
		return false, nil
	}
	err = e.alone(ctx, func() error {
		worth, err := e.worthVacuum(ctx)
		if err == nil && worth {
			err = e.shrink(ctx)
		}
		return err
	})
	switch {
	case err == nil:
		return false, nil
	case lacks(err): // or the table is somebody else's
		e.shrinking.refused = true
		return false, nil
	}
	return false, failure(ctx, "vacuum", err)
}

// alone calls do unless another process is at it. A transaction on a connection of its own holds the lock for that, and
// nothing else: not even the snapshot that a prepared statement would leave it. Should it end early, two processes do
// what one would.
func (e *Engine) alone(ctx context.Context, do func() error) error {
	tx, err := e.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var mine bool
	err = tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1) FROM ("+unlimited(true)+") AS limits", pgx.QueryExecModeSimpleProtocol, shrinkLock).Scan(&mine)
	if err != nil || !mine {
		return err
	}
	return do()
}

// maintain runs a statement that takes its time, on a connection that nobody uses afterwards.
func (e *Engine) maintain(ctx context.Context, statement string) error {
	return e.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if !e.nature.pooled {
			defer func() { _ = conn.Conn().Close(ctx) }()
			if _, err := conn.Exec(ctx, unlimited(false)); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

// unlimited returns the statement that lets the session, or only its transaction, take its time.
func unlimited(transaction bool) string {
	return fmt.Sprintf("SELECT count(set_config(name, '0', %v)) FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')", transaction)
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
func (e *Engine) shrink(ctx context.Context) error {
	x, err := e.vacuum(ctx)
	if err == nil && x.tooLarge() {
		if err = e.rewriteAll(ctx, x); err == nil {
			x, err = e.vacuum(ctx)
		}
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
	return e.rebuild(ctx, x)
}

// vacuum has the room of removed rows used again, cuts off what is free at the end, and returns what there is then.
func (e *Engine) vacuum(ctx context.Context) (extent, error) {
	began := time.Now()
	if err := e.maintain(ctx, "VACUUM (ANALYZE) log"); err != nil {
		return extent{}, err
	}
	x, err := e.extent(ctx)
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
func (e *Engine) rebuild(ctx context.Context, x extent) error {
	if !x.indexesTooLarge(e.shrinking.indexes) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	for _, name := range x.Invalid {
		if err := e.maintain(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+name); err != nil {
			return err
		}
	}
	if err := e.maintain(ctx, "REINDEX TABLE CONCURRENTLY log"); err != nil {
		return err
	}
	x, err := e.extent(ctx)
	e.shrinking.indexes = x.Indexes
	return err
}
