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
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	postgres := harness.NewPostgresServer(t)
	server := sqube.Start(t, sqube.Options{Datastore: postgres.Database(t)})
	client := ledger.NewClient(t, server.Config(t))
	harness.Must(t, ledger.Prepare(ctx, client))
	watch, err := ledger.Follow(ctx, client, ledger.ConfigMaps)
	harness.Must(t, err)
	book := ledger.New()
	load := startLoad(ctx, book, client)
	for range 3 {
		harness.Must(t, load.more(loadBefore))
		harness.Must(t, postgres.Kill())
		harness.Must(t, postgres.Start())
	}
	harness.Must(t, load.more(loadBefore))
	harness.Must(t, load.stop())
	checkAll(t, ctx, book, client, watch)
}
