package sqlstore_test

import (
	"testing"

	"github.com/sqube/sqube/sqlstore/storetest"
)

func TestStoreSQLite(t *testing.T) { storetest.Run(t, storetest.SQLite) }

func TestStorePostgres(t *testing.T) { storetest.Run(t, storetest.Postgres) }
