package sqlstore_test

import (
	"testing"

	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
)

func TestStoreSQLite(t *testing.T) { storetest.Run(t, engines.SQLite) }

func TestStorePostgres(t *testing.T) { storetest.Run(t, engines.Postgres) }

func TestStorePostgresCluster(t *testing.T) { storetest.Run(t, engines.PostgresCluster) }
