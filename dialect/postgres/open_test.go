package postgres_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// withParameter returns dsn with one more parameter.
func withParameter(t *testing.T, dsn, name, value string) string {
	t.Helper()
	u := harness.ParseDSN(t, dsn)
	parameters := u.Query()
	parameters.Set(name, value)
	u.RawQuery = parameters.Encode()
	return u.String()
}

// TestWritesDoNotWaitForReads keeps all read connections busy and commits.
func TestWritesDoNotWaitForReads(t *testing.T) {
	e := open(t, withParameter(t, harness.Postgres(t), "pool_max_conns", "2"))
	release := make(chan struct{})
	var reading, readers sync.WaitGroup
	for i := range 6 {
		if i < 2 {
			reading.Add(1)
		}
		readers.Go(func() {
			err := e.Query(t.Context(), "SELECT revision FROM counter", nil, func(dialect.Row) error {
				if i < 2 {
					reading.Done()
				}
				<-release
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		if i == 1 {
			reading.Wait() // two have the connections, the others wait for one
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := e.Commit(ctx, []dialect.Write{{Operation: dialect.Create, Resource: "pods", Key: "a", Labels: "{}", Fields: "{}", Value: []byte("{}")}}); err != nil {
		t.Errorf("commit during long reads: %v", err)
	}
	if _, err := e.Compact(ctx, 1, 100, nil); err != nil {
		t.Errorf("compaction during long reads: %v", err)
	}
	close(release)
	readers.Wait()
}

// TestReadsSurviveDeadConnections ends all connections of the pool on the server, more than a pool has by default. The following
// reads succeed.
func TestReadsSurviveDeadConnections(t *testing.T) {
	dsn := harness.Postgres(t)
	const connections = 24
	e := open(t, withParameter(t, dsn, "pool_max_conns", strconv.Itoa(connections)))
	conn := harness.Connect(t, dsn)
	for range 5 {
		if err := e.Query(t.Context(), "SELECT 1", nil, func(dialect.Row) error { return nil }); err != nil {
			t.Error(err)
		}
		// As many connections as concurrent readers.
		var readers sync.WaitGroup
		var together sync.WaitGroup
		together.Add(connections)
		for range connections {
			readers.Go(func() {
				err := e.Query(t.Context(), "SELECT revision FROM counter", nil, func(dialect.Row) error {
					together.Done()
					together.Wait()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		readers.Wait()
		if _, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); err != nil {
			t.Fatal(err)
		}
	}
}
