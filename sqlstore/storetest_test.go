package sqlstore_test

import (
	"testing"

	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
)

func TestStoreSQLite(t *testing.T) { storetest.Run(t, engines.SQLite) }

func TestStorePostgres(t *testing.T) { storetest.Run(t, engines.Postgres) }

// TestStorePostgresCluster runs what is about the statements that a cluster's engine sends in another way, and about having one writer.
func TestStorePostgresCluster(t *testing.T) {
	storetest.Run(t, engines.PostgresCluster, "Order", "GroupOfOneCommit", "GroupCreatesWhatItReplaces", "GroupWithAPoisonedWrite", "Transaction",
		"Snapshots", "AmbiguousCommits", "CacheAfterAmbiguousCommit", "Heartbeats", "Compaction", "Past", "Forget", "Purge", "Load", "Restart", "Close")
}
