package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// A vacuum makes the room of removed rows free, and leaves their bytes there until other rows take it. Only writing a table to another file
// (VACUUM FULL) leaves them behind, and nobody else can use the table meanwhile: some 300 ms for 100 MiB. So after a purge that is done for a
// table that is not too large. For past, only reads of history wait.
var eraseMost = map[string]int64{"past": 1 << 30, "log": 128 << 20}

const (
	// eraseLock is how long that waits for transactions that use the table, since all others then wait too; eraseTries how often it is tried,
	// and eraseWait how long to wait before for transactions that still see what was purged.
	eraseLock, eraseTries, eraseWait = 500 * time.Millisecond, 5, 5 * time.Second
)

// The note of a purge is the comment of the table past, so that any server can do what another has left.
const (
	eraseNote  = "what was purged is to be erased from the files"
	noteErase  = "COMMENT ON TABLE past IS '" + eraseNote + "'"
	erasedNote = "COMMENT ON TABLE past IS NULL"
	isNoted    = "SELECT coalesce(obj_description('past'::regclass, 'pg_class') = '" + eraseNote + "', false)"
)

// outside is where this package does not reach.
const outside = "Postgres' write-ahead log, its archive, standbys and base backups, as long as these are kept"

// Erase implements dialect.Engine.
func (e *Engine) Erase(ctx context.Context) (erased dialect.Erased, err error) {
	var noted bool
	if err := e.writer.row(ctx, isNoted, nil, &noted); err != nil || !noted {
		return erased, failure(ctx, "erase", err)
	}
	if err := e.writer.row(ctx, dialect.PurgedInLog, nil, &erased.Kept); err != nil {
		return erased, failure(ctx, "erase", err)
	}
	x := eraser{again: true, left: []string{"free space of its tables, which another server is vacuuming"}}
	err = e.exclusively(ctx, func(conn *pgx.Conn) error {
		x = eraser{conn: conn, pooled: e.capabilities.pooled}
		return x.erase(ctx)
	})
	if unsupported(err) {
		x, err = eraser{left: []string{"free space of its tables, until other rows take it, since this user or server can't vacuum them"}}, nil
	}
	if erased.Again = x.again || erased.Kept > 0; err == nil && !erased.Again {
		err = e.writer.exec(ctx, erasedNote)
	}
	erased.Left = append(x.left, outside)
	return erased, failure(ctx, "erase", err)
}

// eraser erases with a connection that has no timeouts.
type eraser struct {
	conn   *pgx.Conn
	pooled bool
	left   []string // see dialect.Erased
	again  bool     // whether it may succeed later
}

func (x *eraser) erase(ctx context.Context) error {
	if err := x.awaitOthers(ctx); err != nil {
		return err
	}
	for _, table := range []string{"past", "log"} {
		if err := x.eraseTable(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// awaitOthers waits for transactions that began before, since rows that they see are kept.
func (x *eraser) awaitOthers(ctx context.Context) error {
	var now uint64
	if err := x.conn.QueryRow(ctx, "SELECT txid_current() % 4294967296").Scan(&now); err != nil {
		return err
	}
	const older = `
SELECT EXISTS (SELECT 1 FROM pg_stat_activity
               WHERE coalesce(datname, current_database()) = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
                 AND greatest(age(backend_xmin), age(backend_xid)) > age($1::text::xid))
    OR EXISTS (SELECT 1 FROM pg_replication_slots WHERE age(xmin) > age($1::text::xid))
    OR EXISTS (SELECT 1 FROM pg_prepared_xacts WHERE database = current_database())`
	for until := time.Now().Add(eraseWait); ; {
		var held bool
		if err := x.conn.QueryRow(ctx, older, fmt.Sprint(now)).Scan(&held); err != nil || !held {
			return err
		}
		if time.Now().After(until) {
			x.keep("rows that an open transaction, a prepared one or a replication slot still sees, until it has ended")
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// keep notes what may be erased later.
func (x *eraser) keep(left string) {
	x.left, x.again = append(x.left, left), true
}

// eraseTable writes a table to another file, if nobody has to wait for that for long.
func (x *eraser) eraseTable(ctx context.Context, table string) error {
	var size int64
	if err := x.conn.QueryRow(ctx, "SELECT pg_total_relation_size($1::text::regclass)", table).Scan(&size); err != nil {
		return err
	}
	if size > eraseMost[table] || x.pooled { // a pooler would give the limit of the lock to other clients
		x.left = append(x.left, fmt.Sprintf("free space of the table %[1]s, until other rows take it, or until VACUUM FULL %[1]s, for which all writes wait", table))
		_, err := x.conn.Exec(ctx, "VACUUM "+table)
		return err
	}
	if _, err := x.conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", eraseLock.Milliseconds())); err != nil {
		return err
	}
	for range eraseTries { // each waits for the lock
		_, err := x.conn.Exec(ctx, "VACUUM FULL "+table)
		if codeOf(err) != "55P03" {
			return err
		}
	}
	x.keep(fmt.Sprintf("free space of the table %s, which a long transaction uses, until it has ended", table))
	return nil
}
