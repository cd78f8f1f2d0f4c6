package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// TestAskEndsWithItsContext has the context end when SQLite has no statement to interrupt yet: after it has prepared an endless one.
func TestAskEndsWithItsContext(t *testing.T) {
	for name, open := range map[string]func() (*sqlite.Engine, error){
		"file": func() (*sqlite.Engine, error) {
			return sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sqube.db"))
		},
		"memory": func() (*sqlite.Engine, error) { return sqlite.OpenMemory(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			e, err := open()
			harness.Must(t, err)
			defer e.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			prepared := func([]string) {
				cancel()
				time.Sleep(20 * time.Millisecond) // what it interrupts is nothing
			}
			err = e.Ask(ctx, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", prepared, nil)
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
