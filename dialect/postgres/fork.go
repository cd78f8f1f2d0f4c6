package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
)

// Make makes the log of a cluster, unless there is one, and has fill fill it: nobody else can open it before fill has returned. It is a copy of
// another cluster's log, as it is now, unless from is "". The copy is made in the database, from one snapshot: writers of the other log do
// not wait. Its revisions go on from there.
//
// If the process dies meanwhile, Sweep removes what there is.
func (h *Host) Make(ctx context.Context, id, from string, fill func(*Engine) error) error {
	if err := checkID(id); err != nil {
		return err
	}
	if there, err := h.makerOf(ctx, id); err != nil || there {
		return failure(ctx, "make", err)
	}
	if from != "" {
		if err := h.migrated(ctx, from); err != nil {
			return err
		}
	}
	var o *owned
	err := pgx.BeginTxFunc(ctx, h.writes, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
		o, err = h.lay(ctx, tx, id, from)
		return err
	})
	if codeOf(err) == "23505" { // another server has just begun to make it
		return h.Make(ctx, id, from, fill)
	}
	if err != nil {
		return failure(ctx, "make", err)
	}
	if err = fill(h.engine(id, o)); err == nil {
		_, err = h.writes.Exec(ctx, "UPDATE fleet_clusters SET owner = '', removed = false WHERE id = $1", id)
		err = failure(ctx, "make", err)
	}
	if err != nil {
		clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		return errors.Join(err, failure(clearing, "make", h.dropSchema(clearing, id)))
	}
	return nil
}

// makerPause is the pause between looks at a log that another server makes.
const makerPause = 20 * time.Millisecond

// makerOf waits for a server that makes a log, and reports whether the log is there. If that server has died, it removes what there is.
func (h *Host) makerOf(ctx context.Context, id string) (there bool, err error) {
	for {
		var alive bool
		err := h.reads.QueryRow(ctx, `SELECT NOT removed, owner IN (SELECT name FROM fleet_servers WHERE renewed > clock_timestamp() - make_interval(secs => $2))
FROM fleet_clusters WHERE id = $1`, id, lease.Seconds()).Scan(&there, &alive)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return false, nil
		case err != nil || there:
			return there, err
		case !alive:
			if err := h.dropSchema(ctx, id); err != nil {
				return false, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(makerPause):
		}
	}
}

// lay makes the schema of a log, which counts as removed until it is filled, and copies another log to it.
func (h *Host) lay(ctx context.Context, tx pgx.Tx, id, from string) (*owned, error) {
	schema := schemaOf(id)
	script, err := migrations.WholePostgres()
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO fleet_clusters (id, owner, removed) VALUES ($1, $2, true)", id, h.name); err != nil {
		return nil, err
	}
	statements := "CREATE SCHEMA " + schema + ";\nSET LOCAL search_path = " + schema + ";\n" + script
	if from != "" {
		statements += ";\n" + copyLog(schemaOf(from))
	}
	if _, err := tx.Exec(ctx, statements); err != nil {
		return nil, err
	}
	return h.setFence(ctx, tx, 0)
}

// copyLog returns the statements that copy the log in a schema to that of the transaction. The copy's counter does not say which tables it
// belongs to, or it would jump: it is no older state of the other log.
func copyLog(from string) string {
	const counter = "revision, compacted, incarnation, written_at, packed, history_from, history_at"
	past := strings.Join(append(strings.Split(dialect.BlockColumns, ", "), "bytes"), ", ")
	return fmt.Sprintf(`INSERT INTO log (%[2]s) SELECT %[2]s FROM %[1]s.log;
INSERT INTO past (%[3]s) SELECT %[3]s FROM %[1]s.past;
UPDATE counter SET (%[4]s) = (SELECT %[4]s FROM %[1]s.counter)`, from, dialect.Columns, past, counter)
}

// has reports whether there is a cluster's log.
func (h *Host) has(ctx context.Context, id string) (there bool, err error) {
	err = h.reads.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM fleet_clusters WHERE id = $1 AND NOT removed)", id).Scan(&there)
	return there, err
}

// migrated brings the schema of a log up to date that an older server has used last.
func (h *Host) migrated(ctx context.Context, id string) error {
	there, err := h.has(ctx, id)
	if err == nil && !there {
		return fmt.Errorf("%w: %s", ErrNoCluster, id)
	}
	var status migrations.Status
	if err == nil {
		err = h.reads.QueryRow(ctx, "SELECT version, dirty, coalesce(release, '') FROM "+schemaOf(id)+".schema_migrations").Scan(&status.Current, &status.Interrupted, &status.Release)
	}
	if err != nil {
		return failure(ctx, "fork", err)
	}
	if script, err := status.RemainingPostgres(); err != nil || script == "" {
		return err
	}
	if _, mine, err := h.Acquire(ctx, id); err != nil || !mine {
		return err // a server that has it has migrated it
	}
	h.mu.Lock()
	o := h.owned[id]
	h.mu.Unlock()
	if o == nil || o.opened {
		return nil
	}
	return h.release(ctx, id, o.fence)
}

// Rewind makes a log that nobody serves what it was at a revision: rows that are newer are gone, and those that were live then are live. live
// has those of them that have left the log, and past what is to be in the place of the blocks that were current until a later revision.
func (e *Engine) Rewind(ctx context.Context, revision int64, live []*dialect.LogRow, past []*dialect.Block) error {
	return e.failed(ctx, "rewind", e.change(ctx, func(tx pgx.Tx) error {
		for _, statement := range []string{
			"DELETE FROM past WHERE until > $1",
			"DELETE FROM log WHERE id > $1",
			"UPDATE log SET replaced_by = NULL WHERE replaced_by > $1",
			"UPDATE counter SET revision = $1, compacted = least(compacted, $1), packed = least(packed, $1)",
		} {
			if _, err := tx.Exec(ctx, statement, revision); err != nil {
				return err
			}
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"log"}, strings.Split(dialect.Columns, ", "), pgx.CopyFromSlice(len(live), func(i int) ([]any, error) {
			return live[i].Values(), nil
		}))
		if err != nil {
			return err
		}
		e.seen.Store(revision)
		for some := range slices.Chunk(past, blocksAtOnce) {
			batch := &pgx.Batch{}
			for _, b := range some {
				batch.Queue(putBlock, b.Values()...)
			}
			if err := tx.SendBatch(ctx, batch).Close(); err != nil {
				return err
			}
		}
		return nil
	}))
}

// blocksAtOnce is how many blocks are sent without waiting for the server.
const blocksAtOnce = 100
