package sqlstore_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
)

// damaged is an engine whose reads fail once a test says so.
type damaged struct {
	dialect.Engine
	now atomic.Bool
}

// Query implements dialect.Engine.
func (d *damaged) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	if d.now.Load() {
		return &dialect.Error{Op: "query", Engine: d.Name(), Err: dialect.ErrCorrupt}
	}
	return d.Engine.Query(ctx, statement, args, row)
}

// TestDamageIsLoggedOnce reads a damaged database several times.
func TestDamageIsLoggedOnce(t *testing.T) {
	var log storetest.Lines
	engine := &damaged{Engine: storetest.OpenEngine(t, engines.SQLite(t))}
	s := storetest.Start(t, engine, sqlstore.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	engine.now.Store(true)
	for range 3 {
		if _, err := s.Position(t.Context()); !errors.Is(err, dialect.ErrCorrupt) {
			t.Errorf("a read of a damaged database: %v", err)
		}
	}
	if n := strings.Count(log.String(), "the database is damaged: stop all servers"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log.String())
	}
}
