package sqlstore_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// replicas opens n logs on one Postgres database, like n servers.
func replicas(t *testing.T, dsn string, n int, opts sqlstore.Options) []*sqlstore.Store {
	t.Helper()
	stores := make([]*sqlstore.Store, n)
	for i := range stores {
		engine, err := postgres.Open(t.Context(), dsn)
		harness.Must(t, err)
		stores[i] = storetest.Start(t, engine, opts)
	}
	return stores
}

// terminate ends the sessions on the database at dsn that match a condition, and returns their number.
func terminate(t *testing.T, dsn, condition string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND `+condition+`) AS ended`).Scan(&n)
	if err != nil {
		t.Error(err)
	}
	return n
}

// meanwhile calls disturb repeatedly until the returned function is called, and at least once.
func meanwhile(disturb func()) (end func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			disturb()
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}

// writeEverywhere runs the load on all stores at once.
func writeEverywhere(t *testing.T, stores []*sqlstore.Store, load storetest.Load, h *storetest.History) {
	var writers sync.WaitGroup
	for _, s := range stores {
		writers.Go(func() { load.Run(t, s, h) })
	}
	writers.Wait()
}

func TestReplicasSeeEachOther(t *testing.T) {
	const deaf = "query LIKE 'LISTEN%'"
	for _, test := range []struct {
		name    string
		poll    time.Duration
		disturb func(dsn string)
	}{
		{"by notifications", time.Hour, func(string) {}},
		{"by polls", 50 * time.Millisecond, func(dsn string) { terminate(t, dsn, deaf) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dsn := harness.Postgres(t)
			stores := replicas(t, dsn, 3, sqlstore.Options{PollInterval: test.poll, Log: slog.New(slog.DiscardHandler)})
			at, err := stores[0].Position(t.Context())
			harness.Must(t, err)
			var followers []*storetest.Followed
			for _, s := range stores {
				followers = append(followers, storetest.StartFollow(t, s, at.Revision))
			}
			end := meanwhile(func() { test.disturb(dsn) })
			h := &storetest.History{}
			writeEverywhere(t, stores, storetest.Load{Writers: 8, Writes: 30, Keys: 20}, h)
			storetest.Finish(t, stores[0], h)
			for _, f := range followers {
				storetest.Equal(t, "what a replica received", storetest.ShowChanges(f.Changes()), h.Changes(at.Revision, 1<<62))
			}
			end()
		})
	}
}

// unavailable accepts the errors that a client gets while the database is down, and counts them.
func unavailable(count *atomic.Int64) func(error) bool {
	return func(err error) bool {
		count.Add(1)
		return errors.Is(err, dialect.ErrUnavailable)
	}
}

// checkSurvived checks that the log has every acknowledged write, and that a watch that ran all the time received exactly what is
// in the log.
func checkSurvived(t *testing.T, s *sqlstore.Store, follower *storetest.Followed, from int64, h *storetest.History) {
	t.Helper()
	storetest.Eventually(t, "the store writes again", func() bool {
		_, err := s.Write(t.Context(), storetest.Last())
		return err == nil || errors.Is(err, sqlstore.ErrConflict)
	})
	seen := storetest.ShowChanges(follower.Changes())
	replayed, err := storetest.Follow(t.Context(), s, from)
	harness.Must(t, err)
	storetest.Equal(t, "the watch, compared to the log", seen, storetest.ShowChanges(replayed))
	storetest.Subset(t, "the log", h.Changes(from, 1<<62), seen)
}

func TestKilledConnections(t *testing.T) {
	t.Parallel()
	dsn := harness.Postgres(t)
	engine, err := postgres.Open(t.Context(), dsn)
	harness.Must(t, err)
	s := storetest.Start(t, engine, sqlstore.Options{PollInterval: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	at, err := s.Position(t.Context())
	harness.Must(t, err)
	follower := storetest.StartFollow(t, s, at.Revision)
	h := &storetest.History{}
	killed := 0
	end := meanwhile(func() { killed += terminate(t, dsn, "true") })
	var failed atomic.Int64
	storetest.Load{Writers: 16, Writes: 150, Keys: 50, Tolerate: unavailable(&failed)}.Run(t, s, h)
	end()
	checkSurvived(t, s, follower, at.Revision, h)
	storetest.Sound(t, engine)
	if failed.Load() == 0 {
		t.Errorf("no request hit one of the %d killed connections", killed)
	}
}
