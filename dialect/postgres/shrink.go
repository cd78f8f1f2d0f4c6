package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

type shrinking struct {
	refused bool          // the server does not have the statements, or not for this user
	rest    time.Time     // until then it is left to autovacuum
	backoff time.Duration // the last pause after the log remained too large; 0 if it did not
	indexes int64         // bytes of the indexes when they were new
}

const (
	// A vacuum is worthwhile with deadRows dead rows plus one for every deadShare live ones.
	deadRows, deadShare = 1000, 5
	// vacuumShare limits vacuum to one in so many seconds.
	vacuumShare = 10
	// If it did not help, it is retried after growing pauses.
	minBackoff, maxBackoff = 5 * time.Second, 10 * time.Minute
	// rebuildTimeout limits how long rebuilding the indexes waits for transactions.
	rebuildTimeout = time.Minute
	// shrinkLock is the advisory lock of the process that shrinks. It is not that of migrations: a server that starts would wait
	// for the end of the shrinking, and rebuilding the indexes would wait for that server's transaction.
	shrinkLock int64 = 0x736872696e6b // "shrink"
)

// Shrink implements dialect.Engine. It does everything in one call, in one process at a time.
func (e *Engine) Shrink(ctx context.Context) (more bool, err error) {
	if e.shrinking.refused || time.Now().Before(e.shrinking.rest) {
		return false, nil
	}
	worth, err := e.worthVacuum(ctx)
	if err == nil && worth {
		err = e.exclusively(ctx, func(conn *pgx.Conn) error { return e.shrink(ctx, conn) })
	}
	switch {
	case err == nil, serializationFailure(err): // behind a pooler, two processes may shrink at once
		return false, nil
	case unsupported(err): // or the table belongs to another user
		e.shrinking.refused = true
		return false, nil
	}
	return false, failure(ctx, "vacuum", err)
}

// exclusively calls do with a connection that has no timeouts, unless another process is shrinking.
func (e *Engine) exclusively(ctx context.Context, do func(*pgx.Conn) error) error {
	if e.cluster != nil && e.capabilities.pooled {
		return errPooled
	}
	end, mine, err := e.cluster.wholeSession(ctx, false)
	if err != nil || !mine {
		return err
	}
	defer end()
	conn, err := dial(ctx, e.pool.Config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if e.cluster != nil {
		if _, err := conn.Exec(ctx, "SET search_path = "+schemaOf(e.cluster.id)); err != nil {
			return err
		}
	}
	if !e.capabilities.pooled {
		const limits = "'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout'"
		err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1), (SELECT count(set_config(name, '0', false)) FROM pg_settings WHERE name IN ("+limits+"))",
			shrinkLock).Scan(&mine, nil)
		if err != nil || !mine {
			return err
		}
	}
	return do(conn)
}

// hindered is the condition that some transaction would keep vacuum from removing rows or truncating the table, or hold up
// rebuilding the indexes.
const hindered = `
  EXISTS (SELECT 1 FROM pg_stat_activity
          WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start < now() - interval '5 seconds')
  OR EXISTS (SELECT 1 FROM pg_prepared_xacts WHERE database = current_database())
  OR EXISTS (SELECT 1 FROM pg_replication_slots WHERE age(xmin) > 1000)`

// worthVacuum reports whether many rows were removed since the last vacuum, and a vacuum would help.
func (e *Engine) worthVacuum(ctx context.Context) (worth bool, err error) {
	const query = "SELECT ($1 OR n_dead_tup >= $2 + n_live_tup / $3) AND NOT (" + hindered + ") FROM pg_stat_user_tables WHERE relid = 'log'::regclass"
	err = e.writer.row(ctx, query, []any{e.shrinking.backoff > 0, deadRows, deadShare}, &worth)
	return worth, err
}

// shrink does what autovacuum can't. Autovacuum runs once a minute at most, and no vacuum frees a page that still has a row, or
// shrinks an index:
//
//	vacuum ─► rewrite rows, which puts them where the vacuum found room first, at the beginning ─► vacuum, which cuts
//	off the end ─► rebuild the indexes
//
// It does this only if the log is much larger than its rows, and needs no privilege beyond owning the table. Reads and commits
// wait briefly for the truncation, and commits for each rewrite as for another commit.
func (e *Engine) shrink(ctx context.Context, conn *pgx.Conn) error {
	x, err := e.vacuum(ctx, conn)
	for helps := true; err == nil && helps && x.tooLarge(); {
		before := x.Table + x.Toast
		if err = e.rewriteAll(ctx, x); err == nil {
			x, err = e.vacuum(ctx, conn) // stops truncating when another session waits
		}
		helps = x.Table+x.Toast < before
	}
	if err != nil {
		return err
	}
	if x.tooLarge() { // a transaction still sees removed rows
		e.shrinking.backoff = min(max(2*e.shrinking.backoff, minBackoff), maxBackoff)
		e.shrinking.rest = time.Now().Add(e.shrinking.backoff)
	} else {
		e.shrinking.backoff = 0
	}
	return e.rebuild(ctx, conn, x)
}

// vacuum makes the space of removed rows usable again, truncates free pages at the end, and returns the sizes after that. Without
// INDEX_CLEANUP it would skip the indexes if few pages have dead rows, and could not truncate those pages.
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

// rebuild rebuilds the indexes if they are far too large. It blocks nothing, but waits for all transactions that began earlier.
// It first drops what an interrupted rebuild left.
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
			e.shrinking.rest = time.Now().Add(maxBackoff)
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
