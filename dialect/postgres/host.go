package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Host is a database that has the logs of clusters beside its own log: each in a schema of its own, and all over the same connections.
//
// Each server of the database has a row in fleet_servers that it renews, and each cluster has one in fleet_clusters with the server that
// owns it. A server whose row is old is taken for dead: whoever wants one of its clusters removes its row first, with which it loses all of
// them at once. So one statement renews any number of clusters. A server that could not renew its row in time takes its clusters for lost.
type Host struct {
	*Engine // its own log

	reads, writes *pgxpool.Pool
	name          string             // of this process among the servers
	session       chan struct{}      // has room for the one session beside the pools
	stop          context.CancelFunc // ends the renewals
	done          chan struct{}

	mu      sync.Mutex
	url     string
	onLost  func(id string)   // see Join
	owned   map[string]*owned // the clusters that this process owns, by their ids
	left    map[string]string // those that it has left, but could not release yet
	renewed time.Time         // when the last renewal that succeeded began
	// incarnation is the server's when the clusters were opened. A new one may lack commits that are in their servers' memory.
	incarnation string
}

// Of a host's connections for reads, some are for its own log, some for reads of clusters and the others for their writes. One cluster gets
// no more of them than its place allows. With two for the host's writes and renewals, one for notifications, and one for vacuum or a query of a user,
// they come to 19 unless the DSN says otherwise.
const (
	hostShare  = 4  // of 16
	readShare  = 6  // of 16
	writeShare = 5  // of 16
	allShares  = 16 // what the DSN's pool_max_conns is divided into
)

const (
	// renewal is how often a server renews its row, lease how old the row may become before another server may take it for dead, and
	// margin how much earlier the server itself does.
	renewal, lease, margin = time.Second, 5 * time.Second, time.Second / 2
)

// fleetTables are in the schema of the host's log. Several servers may create them at once.
const fleetTables = `
CREATE TABLE IF NOT EXISTS fleet_servers (name text PRIMARY KEY, url text NOT NULL, renewed timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS fleet_clusters (id text PRIMARY KEY, owner text NOT NULL DEFAULT '', epoch bigint NOT NULL DEFAULT 0, removed boolean NOT NULL DEFAULT false)`

// OpenHost opens a database as OpenWithin does, for a server that hosts clusters in it.
func OpenHost(ctx context.Context, d Database, timeout time.Duration) (*Host, error) {
	total := int32(0)
	e, err := open(ctx, d, timeout, func(config *pgxpool.Config) {
		total = config.MaxConns
		config.MaxConns = max(2, total*hostShare/allShares)
	})
	if err != nil {
		return nil, fmt.Errorf("opening the Postgres database: %w", withHint(err))
	}
	h := &Host{
		Engine: e, name: strings.ToLower(rand.Text()), onLost: func(string) {}, session: make(chan struct{}, 1), done: make(chan struct{}),
		owned: map[string]*owned{}, left: map[string]string{},
	}
	if err := h.start(ctx, d, total); err != nil {
		h.closePools()
		return nil, errors.Join(fmt.Errorf("opening the Postgres database for clusters: %w", withHint(err)), e.Close())
	}
	return h, nil
}

func (h *Host) start(ctx context.Context, d Database, total int32) error {
	if err := h.createTables(ctx); err != nil {
		return err
	}
	if err := h.writer.row(ctx, "SELECT "+h.incarnationNow(), nil, &h.incarnation); err != nil {
		return err
	}
	config, err := d.parse()
	if err != nil {
		return err
	}
	findPrimary(config)
	config.ConnConfig.DefaultQueryExecMode = unnamed // a prepared statement would be for the tables of one cluster
	config.MinConns, config.MinIdleConns = 0, 0
	configureServing(config.ConnConfig, h.capabilities, h.sameIncarnation, h.reset)
	for pool, share := range map[**pgxpool.Pool]int32{&h.reads: readShare, &h.writes: writeShare} {
		config := config.Copy()
		config.MaxConns = max(2, total*share/allShares)
		if *pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return err
		}
	}
	if err := h.Renew(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	go h.run(running)
	return nil
}

// createTables creates the fleet's tables. Of several servers that do so at once, all but one may fail once.
func (h *Host) createTables(ctx context.Context) (err error) {
	for range 3 {
		if err = h.writer.exec(ctx, fleetTables); codeOf(err) != "23505" && codeOf(err) != "42P07" {
			return err
		}
	}
	return err
}

// incarnationNow is the expression for the incarnation of the server, ” if it has none.
func (h *Host) incarnationNow() string {
	if h.capabilities.incarnation == timeline {
		return timeline
	}
	return "''"
}

// sameIncarnation has the clusters opened again if a new connection leads to another incarnation of the server.
func (h *Host) sameIncarnation(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, "SELECT "+h.incarnationNow()).ReadAll()
	if err == nil {
		h.failedOver(string(results[0].Rows[0][0]))
	}
	return err
}

// failedOver notes the incarnation of the server, and loses all clusters if it is a new one.
func (h *Host) failedOver(incarnation string) {
	h.mu.Lock()
	before := h.incarnation
	h.incarnation = incarnation
	h.mu.Unlock()
	if before != incarnation {
		slog.Warn("Postgres failed over or was restored, and may lack the last writes: all clusters are opened again")
		h.loseAll()
	}
}

// Close leaves all clusters to other servers, and closes the database.
func (h *Host) Close() error {
	h.stop()
	<-h.done
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	err := h.writer.exec(ctx, "DELETE FROM fleet_servers WHERE name = $1", h.name)
	h.closePools()
	return errors.Join(failure(ctx, "leave", err), h.Engine.Close())
}

func (h *Host) closePools() {
	for _, pool := range []*pgxpool.Pool{h.reads, h.writes} {
		if pool != nil {
			pool.Close()
		}
	}
}

// reset replaces all connections before their next use.
func (h *Host) reset() {
	h.Engine.reset()
	for _, pool := range []*pgxpool.Pool{h.reads, h.writes} {
		if pool != nil {
			pool.Reset()
		}
	}
}

// run renews the row of this server until ctx ends.
func (h *Host) run(ctx context.Context) {
	defer close(h.done)
	ticker := time.NewTicker(renewal)
	defer ticker.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		bounded, cancel := context.WithTimeout(ctx, lease)
		err := h.Renew(bounded)
		cancel()
		if err != nil && ctx.Err() == nil && !failing {
			slog.Error("renewing what this server has of the clusters failed; if that goes on, others take them over", "error", err)
		}
		failing = err != nil
		if failing {
			continue
		}
		h.mu.Lock()
		left := make(map[string]string, len(h.left))
		for id, fence := range h.left {
			left[id] = fence
		}
		h.mu.Unlock()
		for id, fence := range left {
			_ = h.release(ctx, id, fence) // it stays in left until it succeeds
		}
	}
}

// Renew renews this server's claim to all of its clusters. It is called by the host itself.
func (h *Host) Renew(ctx context.Context) error {
	began := time.Now()
	h.mu.Lock()
	url := h.url
	h.mu.Unlock()
	var known bool
	var incarnation string
	err := h.writer.row(ctx, `
WITH known AS (SELECT 1 FROM fleet_servers WHERE name = $1 FOR UPDATE),
renewed AS (INSERT INTO fleet_servers (name, url, renewed) VALUES ($1, $2, clock_timestamp())
            ON CONFLICT (name) DO UPDATE SET url = $2, renewed = clock_timestamp())
SELECT EXISTS (SELECT 1 FROM known), `+h.incarnationNow(), []any{h.name, url}, &known, &incarnation)
	if err != nil {
		return failure(ctx, "renew", err)
	}
	if !known {
		h.loseAll() // another server has taken this one for dead
	}
	h.failedOver(incarnation)
	h.mu.Lock()
	h.renewed = began
	h.mu.Unlock()
	return nil
}

// Holds reports whether this server owns a cluster and may answer for it: nobody else can have taken it over.
func (h *Host) Holds(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owned[id] != nil && h.fresh()
}

// fresh reports whether the last renewal is recent, by both clocks: the monotonic one stops while the machine is suspended.
func (h *Host) fresh() bool {
	since := max(time.Since(h.renewed), time.Now().Round(0).Sub(h.renewed.Round(0)))
	return since < lease-margin
}

// owned is a cluster that this process owns.
type owned struct {
	fence    string
	revision int64 // its newest when it was acquired
	opened   bool
}

// owns reports whether this process still owns a cluster as it did with a fence.
func (h *Host) owns(id, fence string) bool {
	o := h.owned[id]
	return o != nil && o.fence == fence
}

// lose takes a cluster for lost, if it is still open with that fence.
func (h *Host) lose(id, fence string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owns(id, fence) {
		delete(h.owned, id)
		go h.onLost(id)
	}
}

func (h *Host) loseAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.owned {
		delete(h.owned, id)
		go h.onLost(id)
	}
}

// release makes a cluster free, unless another server has it.
func (h *Host) release(ctx context.Context, id, fence string) error {
	h.mu.Lock()
	if h.owns(id, fence) {
		delete(h.owned, id)
	}
	h.left[id] = fence
	h.mu.Unlock()
	epoch := fence[strings.LastIndexByte(fence, '/')+1:]
	batch := &pgx.Batch{}
	batch.Queue("SELECT set_config('synchronous_commit', 'off', true)") // if it is lost, this server goes on to have it
	batch.Queue("UPDATE fleet_clusters SET owner = '' WHERE id = $1 AND owner = $2 AND epoch = $3::text::bigint", id, h.name, epoch)
	err := h.writer.send(ctx, batch)
	if err != nil {
		return failure(ctx, "release", err)
	}
	h.mu.Lock()
	if h.left[id] == fence {
		delete(h.left, id)
	}
	h.mu.Unlock()
	return nil
}

// idPattern is what the ids of clusters look like, so that they can be parts of names in SQL.
var idPattern = regexp.MustCompile(`^[a-z0-9]{1,40}$`)

func schemaOf(id string) string { return "sqube_" + id }

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%q is not the id of a cluster's database", id)
	}
	return nil
}

// inHost runs do in a transaction about the host's tables.
func (h *Host) inHost(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, h.writes, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, do)
}
