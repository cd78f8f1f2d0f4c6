package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
)

// ErrNoCluster is returned for an id that no cluster's database has.
var ErrNoCluster = errors.New("there is no such cluster database")

// Owner is the server that owns a cluster.
type Owner struct {
	// URL is where it can be reached, "" if it has not said so.
	URL string
}

// Acquire has this server own a cluster, unless another one does that is alive: then it returns that one, and mine is false. It brings the
// cluster's schema up to date.
func (h *Host) Acquire(ctx context.Context, id string) (owner Owner, mine bool, err error) {
	if err := checkID(id); err != nil {
		return Owner{}, false, err
	}
	if h.Holds(id) {
		return Owner{URL: h.url}, true, nil
	}
	var o *owned
	err = h.inHost(ctx, func(tx pgx.Tx) error {
		free, takeover, err := h.claim(ctx, tx, id, &owner)
		if err != nil || !free {
			return err
		}
		o, err = h.enter(ctx, tx, id, takeover)
		return err
	})
	if err != nil {
		return Owner{}, false, failure(ctx, "acquire", err)
	}
	if o == nil {
		return owner, false, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owned[id] = o
	return Owner{URL: h.url}, true, nil
}

// Owner returns the URL of the server that owns a cluster and is alive, "" if there is none, or if it is this one.
func (h *Host) Owner(ctx context.Context, id string) (url string, err error) {
	err = h.reads.QueryRow(ctx, `SELECT s.url FROM fleet_clusters c JOIN fleet_servers s ON s.name = c.owner
WHERE c.id = $1 AND s.name <> $2 AND s.renewed > clock_timestamp() - make_interval(secs => $3)`, id, h.name, lease.Seconds()).Scan(&url)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return url, failure(ctx, "read", err)
}

// claim writes this server into the row of a cluster, if that is free. takeover is set if a server had it before that is dead. Otherwise it
// sets the owner.
func (h *Host) claim(ctx context.Context, tx pgx.Tx, id string, owner *Owner) (free, takeover bool, err error) {
	var name, url string
	var known, alive bool
	err = tx.QueryRow(ctx, `
SELECT c.owner, coalesce(s.url, ''), s.name IS NOT NULL, coalesce(s.renewed > clock_timestamp() - make_interval(secs => $2), false)
FROM fleet_clusters c LEFT JOIN fleet_servers s ON s.name = c.owner WHERE c.id = $1 AND NOT c.removed FOR UPDATE OF c`, id, lease.Seconds()).Scan(&name, &url, &known, &alive)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, false, fmt.Errorf("%w: %s", ErrNoCluster, id)
	case err != nil:
		return false, false, err
	case alive && name != h.name:
		*owner = Owner{URL: url}
		return false, false, nil
	case known && name != h.name:
		// If it renews its row at this moment, it keeps all of its clusters.
		tag, err := tx.Exec(ctx, "DELETE FROM fleet_servers WHERE name = $1 AND renewed <= clock_timestamp() - make_interval(secs => $2)", name, lease.Seconds())
		if err != nil {
			return false, false, err
		}
		if tag.RowsAffected() == 0 {
			*owner = Owner{URL: url}
			return false, false, nil
		}
	}
	return true, name != "", nil
}

// enter makes this server the owner of a cluster's log. It waits for what a former owner is committing.
func (h *Host) enter(ctx context.Context, tx pgx.Tx, id string, takeover bool) (*owned, error) {
	if takeover {
		if err := h.endStuck(ctx, tx, id); err != nil {
			return nil, err
		}
	}
	var epoch int64
	var status migrations.Status
	batch := &pgx.Batch{}
	batch.Queue("UPDATE fleet_clusters SET owner = $2, epoch = epoch + 1 WHERE id = $1 RETURNING epoch", id, h.name).QueryRow(func(row pgx.Row) error { return row.Scan(&epoch) })
	batch.Queue(nameSchema, schemaOf(id))
	batch.Queue("SELECT version, dirty, coalesce(release, '') FROM schema_migrations FOR UPDATE").QueryRow(func(row pgx.Row) error {
		return row.Scan(&status.Current, &status.Interrupted, &status.Release)
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	script, err := status.RemainingPostgres()
	if err != nil {
		return nil, fmt.Errorf("the database of cluster %s: %w", id, err)
	}
	if script != "" {
		if _, err := tx.Exec(ctx, script); err != nil {
			return nil, err
		}
	}
	return h.setFence(ctx, tx, epoch)
}

// endStuck ends sessions of a former owner that hold the counter's lock and wait for their client.
func (h *Host) endStuck(ctx context.Context, tx pgx.Tx, id string) error {
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		_, err := inner.Exec(ctx, "SET LOCAL search_path = "+schemaOf(id))
		if err == nil {
			_, err = inner.Exec(ctx, endStuckSessions, 0)
		}
		if err == nil {
			_, err = inner.Exec(ctx, "SET LOCAL search_path TO DEFAULT")
		}
		return err
	})
	if unsupported(err) {
		return nil
	}
	return err
}

// setFence writes a new fence into the counter. The counter jumps before if the log may lack commits; see jumpRevision.
func (h *Host) setFence(ctx context.Context, tx pgx.Tx, epoch int64) (*owned, error) {
	oids := h.capabilities.database
	if oids == "database" {
		oids = "'0/0'"
	}
	const current = "split_part(database, '/', 1) || '/' || split_part(database, '/', 2)"
	condition := fmt.Sprintf("WHERE incarnation NOT IN ('', %s) OR database <> '' AND %s <> %s", h.capabilities.incarnation, current, oids)
	o := &owned{}
	batch := &pgx.Batch{}
	batch.Queue(jump(beyond("revision", "written_at"), "one = one", condition))
	batch.Queue(fmt.Sprintf("UPDATE counter SET incarnation = %s, database = %s || '/' || $1::bigint RETURNING database, revision", h.capabilities.incarnation, oids), epoch).
		QueryRow(func(row pgx.Row) error { return row.Scan(&o.fence, &o.revision) })
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	return o, dialect.CheckRevision(o.revision)
}

// Open opens the log of a cluster that this server owns, see Acquire. Closing it leaves the cluster to others.
func (h *Host) Open(id string) (*Engine, error) {
	o, err := h.use(id)
	if err != nil {
		return nil, &dialect.Error{Op: "open", Engine: "postgres", Err: fmt.Errorf("%w (cluster database %s)", err, id)}
	}
	return h.engine(id, o), nil
}

// engine returns an engine on a log.
func (h *Host) engine(id string, o *owned) *Engine {
	schema := schemaOf(id)
	e := &Engine{
		pool:         &conns{Pool: h.reads, schema: schema, places: make(chan struct{}, max(1, h.reads.Config().MaxConns/2))},
		writer:       &conns{Pool: h.writes, schema: schema},
		capabilities: h.capabilities,
		cluster:      &cluster{host: h, id: id, fence: o.fence},
	}
	e.capabilities.notifies = false
	e.seen.Raise(o.revision)
	return e
}

// use marks a cluster that this server owns as opened.
func (h *Host) use(id string) (*owned, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.owned[id]
	switch {
	case o == nil:
		return nil, dialect.ErrTaken
	case o.opened:
		return nil, dialect.ErrLocked
	}
	o.opened = true
	return o, nil
}

// Drop removes a cluster's log, unless a server that is alive owns it: then the error wraps dialect.ErrLocked. If the process dies meanwhile,
// Sweep does the rest.
func (h *Host) Drop(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	err := h.inHost(ctx, func(tx pgx.Tx) error {
		free, _, err := h.claim(ctx, tx, id, new(Owner))
		if errors.Is(err, ErrNoCluster) {
			return nil
		}
		h.mu.Lock()
		used := h.owned[id] != nil && h.owned[id].opened
		h.mu.Unlock()
		if err == nil && (!free || used) {
			return fmt.Errorf("removing the cluster database %s: %w", id, dialect.ErrLocked)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE fleet_clusters SET removed = true, owner = '', epoch = epoch + 1 WHERE id = $1", id)
		}
		return err
	})
	if err == nil {
		err = h.dropSchema(ctx, id)
	}
	return failure(ctx, "drop", err)
}

// dropSchema removes the schema of a cluster table by table, so that no transaction takes long or many locks.
func (h *Host) dropSchema(ctx context.Context, id string) error {
	schema := schemaOf(id)
	for _, o := range logObjects {
		if _, err := h.writes.Exec(ctx, "DROP "+o.kind+" IF EXISTS "+schema+"."+o.name+" CASCADE"); err != nil {
			return err
		}
	}
	return h.inHost(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM fleet_clusters WHERE id = $1", id)
		return err
	})
}

// Sweep removes what servers that have died have left unfinished: of logs that they made, and of logs that they removed.
func (h *Host) Sweep(ctx context.Context) error {
	rows, err := h.reads.Query(ctx, "SELECT id FROM fleet_clusters WHERE removed AND owner NOT IN (SELECT name FROM fleet_servers WHERE renewed > clock_timestamp() - make_interval(secs => $1))", lease.Seconds())
	if err != nil {
		return failure(ctx, "drop", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for i := 0; err == nil && i < len(ids); i++ {
		err = h.dropSchema(ctx, ids[i])
	}
	return failure(ctx, "drop", err)
}

// IDs returns the ids of all clusters' logs.
func (h *Host) IDs(ctx context.Context) (ids []string, err error) {
	rows, err := h.reads.Query(ctx, "SELECT id FROM fleet_clusters WHERE NOT removed ORDER BY id")
	if err == nil {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return ids, failure(ctx, "list", err)
}

// Revision returns the newest revision of a cluster's log.
func (h *Host) Revision(ctx context.Context, id string) (revision int64, err error) {
	if err := checkID(id); err != nil {
		return 0, err
	}
	err = h.reads.QueryRow(ctx, "SELECT revision FROM "+schemaOf(id)+".counter").Scan(&revision)
	return revision, failure(ctx, "read", err)
}

// Join has other servers know where this one can be reached. lost is called, by a goroutine of its own, for each cluster that this server
// owned, and that another one may have taken over: it must be closed at once, and opened again before it is used.
func (h *Host) Join(ctx context.Context, url string, lost func(id string)) error {
	h.mu.Lock()
	h.url, h.onLost = url, lost
	h.mu.Unlock()
	return h.Renew(ctx)
}

// Bytes returns how much space the log of a cluster takes.
func (h *Host) Bytes(ctx context.Context, id string) (n int64, err error) {
	err = h.reads.QueryRow(ctx, bytesOf("$1::text"), schemaOf(id)).Scan(&n)
	return n, failure(ctx, "measure", err)
}
