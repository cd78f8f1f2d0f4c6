package reads

import (
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestReads runs one server per engine, with all versions enabled. It reads everything on SQLite; on Postgres, of the built-in
// resources only those of the core group, and custom ones only as they were written: all are rows of the same table.
func TestReads(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		server := sqube.Start(t, sqube.Options{
			Datastore: engine.Datastore,
			Args:      []string{"--runtime-config=api/all=true"},
		})
		c := newCluster(t, server, engine)
		t.Run("every resource", func(t *testing.T) { testResources(t, c) })
		t.Run("many objects", func(t *testing.T) { testMany(t, c) })
		t.Run("custom resources", func(t *testing.T) { testCustom(t, c) })
		t.Run("edited rows", func(t *testing.T) { testEdited(t, c) })
	})
}
