package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqube/sqube/dialect"
)

// The statements of a commit, sent as one batch: one round trip, one implicit transaction. Write i of n gets the id counter-n+i.
//
// The counter's row lock is taken first, so commits queue up there and can't deadlock; see bump.
const (
	// If several writes replace the same row, the first one closes it. The condition that the row is live is written so that
	// Postgres does not use the index of live rows: without statistics it assumes that there are few.
	closeRows = `
UPDATE log SET replaced_by = (SELECT revision FROM counter) - $1 + array_position($2::bigint[], id)
WHERE id = ANY($2::bigint[]) AND coalesce(replaced_by, 0) = 0`

	// A write lands if it replaces nothing, or if it closed the row that it replaces. DO NOTHING covers a key that exists, or
	// that an earlier write of the group created: without a join, rows come in the order of the arrays, whatever plan is chosen.
	insertRows = `
INSERT INTO log (` + dialect.Columns + `)
SELECT w.id, w.replaces, CASE WHEN w.operation = 'delete' THEN w.id END,
       w.operation, w.api_group, w.resource, w.key, w.namespace, w.name, w.uid,
       (SELECT written_at FROM counter), nullif(w.expires_at, 0), w.user_name, w.field_manager, w.labels, w.fields,
       CASE WHEN w.operation <> 'delete' THEN w.value END, w.address, w.audit_id, w.impersonated_user, w.credential_id
FROM (SELECT (SELECT revision FROM counter) - $1 + u.ord AS id, u.*
      FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                  $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[])
           WITH ORDINALITY AS u(replaces, operation, api_group, resource, key, namespace, name, uid,
                  expires_at, user_name, field_manager, labels, fields, value, address, audit_id, impersonated_user, credential_id, ord)) w
WHERE w.replaces = 0 OR (SELECT p.replaced_by FROM log p WHERE p.id = w.replaces) = w.id
ON CONFLICT (api_group, resource, key) WHERE replaced_by IS NULL DO NOTHING
RETURNING id`

	// requireAll fails if one of the objects is not as required, and landAll if a row of the group is missing: they take the root of a
	// negative number, since a commit that takes one round trip can end itself by nothing but an error.
	requireAll = `
SELECT sqrt(count(*) - $1::bigint) FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS r(api_group, resource, key, id)
WHERE r.id = coalesce((SELECT l.id FROM log l WHERE l.api_group = r.api_group AND l.resource = r.resource AND l.key = r.key AND l.replaced_by IS NULL), 0)`
	landAll = `SELECT sqrt(count(*) - $1::bigint) FROM log WHERE id > (SELECT revision FROM counter) - $1`

	notify = `SELECT pg_notify('` + channel + `', revision::text) FROM counter`

	// notifyIfRoom notifies if the queue of notifications is at most half full. The function also has the server drop what every
	// session has received, which nothing else does while the queue is full.
	notifyIfRoom = notify + ` WHERE pg_notification_queue_usage() <= 0.5`
)

// notifyPause is how long commits do without NOTIFY after it has failed.
const notifyPause = time.Second

// unnotified is why and since when commits do without NOTIFY. If the queue of notifications is full, for example, a commit with NOTIFY
// fails.
type unnotified struct {
	cause error // nil if they notify
	since time.Time
}

// statement returns the statement with which a commit notifies, or "".
func (u *unnotified) statement() string {
	switch {
	case u.cause == nil:
		return notify
	case time.Since(u.since) < notifyPause:
		return ""
	}
	return notifyIfRoom
}

// Commit implements dialect.Engine.
func (e *Engine) Commit(ctx context.Context, group []dialect.Write) (dialect.Committed, error) {
	return e.commitGroup(ctx, group, nil)
}

// CommitAll implements dialect.Engine.
func (e *Engine) CommitAll(ctx context.Context, group []dialect.Write, required []dialect.Required) (dialect.Committed, error) {
	return e.commitGroup(ctx, group, &all{required})
}

// all makes a group one that is committed as a whole or not at all.
type all struct{ required []dialect.Required }

func (e *Engine) commitGroup(ctx context.Context, group []dialect.Write, all *all) (dialect.Committed, error) {
	notify := ""
	if e.capabilities.notifies {
		notify = e.unnotified.statement()
	}
	for conflicts := 0; ; {
		committed, written, err := e.commit(ctx, group, all, notify)
		switch {
		case err == nil:
			e.seen.Raise(committed.Last)
			e.unnotified.cause = committed.Unnotified
			return committed, nil
		case e.cluster.isTaken(err):
			return dialect.Committed{}, e.cluster.taken("commit")
		case codeOf(err) == "22012": // see bump
			jump := func(conn *pgxpool.Conn) error { return e.jumpRevision(ctx, conn.Conn().PgConn()) }
			if err = e.writer.AcquireFunc(ctx, jump); err == nil {
				continue
			}
		case all != nil && codeOf(err) == "2201F": // see requireAll
			return dialect.Committed{}, dialect.ErrConflict
		case serializationFailure(err):
			if backOff(ctx, conflicts) {
				conflicts++
				continue
			}
			err = ctx.Err()
		case written && notify != "" && rolledBack(err):
			e.unnotified = unnotified{notifyHint(err), time.Now()}
			notify = ""
			continue
		}
		return dialect.Committed{}, failure(ctx, "commit", err)
	}
}

// The pauses before a commit is repeated that conflicted with another server's. Each is longer than the one before, and all are random, or
// the same commits would meet again.
const (
	firstPause = time.Millisecond
	maxPause   = 100 * time.Millisecond
)

// backOff pauses after so many earlier conflicts, or returns false if ctx ends.
func backOff(ctx context.Context, conflicts int) bool {
	select {
	case <-time.After(rand.N(min(firstPause<<min(conflicts, 10), maxPause))):
		return true
	case <-ctx.Done():
		return false
	}
}

// commit sends a group, and the statement notify unless that is "". It also returns whether all rows were written, so that an error
// is of notify or of the commit itself.
func (e *Engine) commit(ctx context.Context, group []dialect.Write, all *all, notify string) (_ dialect.Committed, written bool, _ error) {
	n := int64(len(group))
	batch := &pgx.Batch{}
	committed := dialect.Committed{Landed: make([]bool, len(group)), Unnotified: e.unnotified.cause}
	at, ahead := dialect.CommitTime(group)
	bump, arguments := e.bump(n, at, ahead)
	batch.Queue(bump, arguments...).QueryRow(func(row pgx.Row) error { return row.Scan(&committed.Last, &committed.WrittenAt, nil, nil) })
	if all != nil && len(all.required) > 0 {
		batch.Queue(requireAll, all.columns()...)
	}
	columns := toColumns(group)
	batch.Queue(closeRows, n, columns[0])
	batch.Queue(insertRows, append([]any{n}, columns...)...).Query(func(rows pgx.Rows) error {
		var id int64
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			committed.Landed[id-committed.Before()-1] = true
			return nil
		})
		written = err == nil
		return err
	})
	if all != nil {
		batch.Queue(landAll, n)
	}
	if notify != "" {
		batch.Queue(notify).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() > 0 {
				committed.Unnotified = nil
			}
			return nil
		})
	}
	err := e.writer.send(ctx, batch)
	return committed, written, err
}

// columns returns the parameters of requireAll.
func (a *all) columns() []any {
	n := len(a.required)
	groups, resources, keys, ids := make([]string, n), make([]string, n), make([]string, n), make([]int64, n)
	for i, r := range a.required {
		groups[i], resources[i], keys[i], ids[i] = r.Group, r.Resource, r.Key, r.ID
	}
	return []any{n, groups, resources, keys, ids}
}

// toColumns turns writes into the arrays that insertRows unnests, in its order.
func toColumns(group []dialect.Write) []any {
	replaces, expiresAt := make([]int64, len(group)), make([]int64, len(group))
	var texts [16][]string
	for i := range texts {
		texts[i] = make([]string, len(group))
	}
	for i := range group {
		w := &group[i]
		replaces[i], expiresAt[i] = w.Replaces, w.ExpiresAt
		for j, text := range [...]string{string(w.Operation), w.Group, w.Resource, w.Key, w.Namespace, w.Name, w.UID,
			w.User, w.FieldManager, w.Labels, w.Fields, string(w.Value), w.Address, w.AuditID, w.ImpersonatedUser, w.CredentialID} {
			texts[j][i] = text
		}
	}
	return []any{replaces, texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], texts[6],
		expiresAt, texts[7], texts[8], texts[9], texts[10], texts[11], texts[12], texts[13], texts[14], texts[15]}
}

// Exec runs a statement that changes the log, for repairs. Each ? in it is a parameter.
func (e *Engine) Exec(ctx context.Context, statement string, args ...any) error {
	err := e.writer.exec(ctx, numbered(statement), args...)
	return failure(ctx, "execute", err)
}
