package crash

import (
	"context"
	"testing"

	"github.com/sqube/sqube/test/crash/ledger"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestDatabaseCrashLosesNothing kills Postgres three times while clients write and the server keeps running. Requests meanwhile
// get retryable errors; afterwards every acknowledged write is there, and a watch receives each change exactly once.
func TestDatabaseCrashLosesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	postgres := harness.NewPostgresServer(t)
	server := sqube.Start(t, sqube.Options{Datastore: postgres.Database(t)})
	client := ledger.NewClient(t, server.Config(t))
	if err := ledger.Prepare(ctx, client); err != nil {
		t.Fatal(err)
	}
	watch, err := ledger.Follow(ctx, client, ledger.ConfigMaps)
	if err != nil {
		t.Fatal(err)
	}
	book := ledger.New()
	load := startLoad(ctx, book, client)
	for range 3 {
		if err := load.more(loadBefore); err != nil {
			t.Fatal(err)
		}
		if err := postgres.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := postgres.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := load.more(loadBefore); err != nil {
		t.Fatal(err)
	}
	if err := load.stop(); err != nil {
		t.Fatal(err)
	}
	checkAll(t, ctx, book, client, watch)
}
