package sqlite_test

import (
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// TestMemoriesAreApart opens two in-memory databases. They share nothing, and lose their rows when closed.
func TestMemoriesAreApart(t *testing.T) {
	for range 2 {
		var engines []*sqlite.Engine
		for range 2 {
			e, err := sqlite.OpenMemory(t.Context())
			harness.Must(t, err)
			engines = append(engines, e)
		}
		commit(t, engines[0], []dialect.Write{create("a", []byte(`{}`))})
		for i, want := range []string{"1", "0"} {
			if got := text(t, engines[i], "SELECT count(*) FROM log"); got != want {
				t.Errorf("database %d has %s rows, want %s", i, got, want)
			}
			if err := engines[i].Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestMemoryOutlivesItsConnection makes the driver reconnect, as after a connection failed.
func TestMemoryOutlivesItsConnection(t *testing.T) {
	e, err := sqlite.OpenMemory(t.Context())
	harness.Must(t, err)
	defer e.Close()
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	sqlite.DropConnections(e)
	if got := text(t, e, "SELECT count(*) FROM log"); got != "1" {
		t.Errorf("it has %s rows", got)
	}
	commit(t, e, []dialect.Write{create("b", []byte(`{}`))})
}
