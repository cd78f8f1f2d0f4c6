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

// Create makes the empty log of a new cluster.
func (h *Host) Create(ctx context.Context, id string) error {
	return failure(ctx, "create", h.create(ctx, id, pgx.ReadCommitted, func(pgx.Tx) error { return nil }))
}

// create makes a log and fills it with fill, in one transaction: it is whole or not there.
func (h *Host) create(ctx context.Context, id string, level pgx.TxIsoLevel, fill func(pgx.Tx) error) error {
	if err := checkID(id); err != nil {
		return err
	}
	script, err := migrations.Remaining(migrations.Postgres, 0)
	if err != nil {
		return err
	}
	return h.inHost(ctx, level, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO fleet_clusters (id) VALUES ($1)", id); err != nil {
			return err
		}
		schema := schemaOf(id)
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+schema+";\nSET LOCAL search_path = "+schema+";\n"+script); err != nil {
			return err
		}
		return fill(tx)
	})
}

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
	var fence string
	err = h.inHost(ctx, pgx.ReadCommitted, func(tx pgx.Tx) error {
		free, takeover, err := h.claim(ctx, tx, id, &owner)
		if err != nil || !free {
			return err
		}
		fence, err = h.enter(ctx, tx, id, takeover)
		return err
	})
	if err != nil {
		return Owner{}, false, failure(ctx, "acquire", err)
	}
	if fence == "" {
		return owner, false, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owned[id] = &owned{fence: fence}
	return Owner{URL: h.url}, true, nil
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

// enter makes this server the owner of a cluster's log, and returns the fence. It waits for what a former owner is committing.
func (h *Host) enter(ctx context.Context, tx pgx.Tx, id string, takeover bool) (fence string, err error) {
	var epoch int64
	if err := tx.QueryRow(ctx, "UPDATE fleet_clusters SET owner = $2, epoch = epoch + 1 WHERE id = $1 RETURNING epoch", id, h.name).Scan(&epoch); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL search_path = "+schemaOf(id)); err != nil {
		return "", err
	}
	if takeover {
		if err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			_, err := inner.Exec(ctx, endStuckSessions, 0)
			return err
		}); err != nil && !unsupported(err) {
			return "", err
		}
	}
	var status migrations.Status
	err = tx.QueryRow(ctx, "SELECT version, dirty, coalesce(release, '') FROM schema_migrations FOR UPDATE").Scan(&status.Current, &status.Interrupted, &status.Release)
	if err != nil {
		return "", err
	}
	script, err := status.Remaining(migrations.Postgres)
	if err != nil {
		return "", fmt.Errorf("the database of cluster %s: %w", id, err)
	}
	if script != "" {
		if _, err := tx.Exec(ctx, script); err != nil {
			return "", err
		}
	}
	return h.setFence(ctx, tx, epoch)
}

// setFence writes a new fence into the counter. The counter jumps before if the log may lack commits; see jumpRevision.
func (h *Host) setFence(ctx context.Context, tx pgx.Tx, epoch int64) (fence string, err error) {
	oids := h.capabilities.database
	if oids == "database" {
		oids = "'0/0'"
	}
	current := "split_part(database, '/', 1) || '/' || split_part(database, '/', 2)"
	condition := fmt.Sprintf("WHERE incarnation NOT IN ('', %s) OR database <> '' AND %s <> %s", h.capabilities.incarnation, current, oids)
	if _, err := tx.Exec(ctx, jump(beyond("revision", "written_at"), "one = one", condition)); err != nil {
		return "", err
	}
	set := fmt.Sprintf("UPDATE counter SET incarnation = %s, database = %s || '/%d' RETURNING database, revision", h.capabilities.incarnation, oids, epoch)
	var revision int64
	if err := tx.QueryRow(ctx, set).Scan(&fence, &revision); err != nil {
		return "", err
	}
	return fence, dialect.CheckRevision(revision)
}

// Open opens the log of a cluster that this server owns, see Acquire. Closing it leaves the cluster to others.
func (h *Host) Open(ctx context.Context, id string) (*Engine, error) {
	fence, err := h.use(id)
	if err != nil {
		return nil, &dialect.Error{Op: "open", Engine: "postgres", Err: fmt.Errorf("%w (cluster database %s)", err, id)}
	}
	schema := schemaOf(id)
	e := &Engine{
		pool:         &conns{Pool: h.reads, schema: schema, places: make(chan struct{}, max(1, h.reads.Config().MaxConns/2))},
		writer:       &conns{Pool: h.writes, schema: schema},
		capabilities: h.capabilities,
		cluster:      &cluster{host: h, id: id, fence: fence},
	}
	e.capabilities.notifies = false
	var revision int64
	if err := e.writer.row(ctx, "SELECT revision FROM counter", nil, &revision); err != nil {
		return nil, errors.Join(failure(ctx, "open", err), h.release(ctx, id, fence))
	}
	e.seen.Raise(revision)
	return e, nil
}

// use returns the fence of a cluster to be opened.
func (h *Host) use(id string) (fence string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.owned[id]
	switch {
	case o == nil:
		return "", dialect.ErrTaken
	case o.opened:
		return "", dialect.ErrLocked
	}
	o.opened = true
	return o.fence, nil
}

// Drop removes a cluster's log. If it fails or the process dies meanwhile, Sweep does the rest.
func (h *Host) Drop(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, h.writes, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE fleet_clusters SET removed = true, owner = '', epoch = epoch + 1 WHERE id = $1", id)
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
		if _, err := h.writes.Exec(ctx, "DROP "+o.kind+" IF EXISTS "+schema+"."+o.name+" CASCADE"); err != nil && codeOf(err) != "3F000" {
			return err
		}
	}
	return pgx.BeginFunc(ctx, h.writes, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM fleet_clusters WHERE id = $1", id)
		return err
	})
}

// Sweep finishes what an interrupted Drop has left.
func (h *Host) Sweep(ctx context.Context) error {
	ids, err := h.ids(ctx, true)
	for i := 0; err == nil && i < len(ids); i++ {
		err = h.dropSchema(ctx, ids[i])
	}
	return failure(ctx, "drop", err)
}

// IDs returns the ids of all clusters' logs.
func (h *Host) IDs(ctx context.Context) ([]string, error) {
	ids, err := h.ids(ctx, false)
	return ids, failure(ctx, "list", err)
}

func (h *Host) ids(ctx context.Context, removed bool) ([]string, error) {
	rows, err := h.reads.Query(ctx, "SELECT id FROM fleet_clusters WHERE removed = $1 ORDER BY id", removed)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Bytes returns how much space the log of a cluster takes.
func (h *Host) Bytes(ctx context.Context, id string) (n int64, err error) {
	err = h.reads.QueryRow(ctx, bytesOf("$1::text"), schemaOf(id)).Scan(&n)
	return n, failure(ctx, "measure", err)
}
