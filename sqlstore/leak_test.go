package sqlstore_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestCloseEndsEverything opens, uses and closes logs, and checks that no goroutines remain.
func TestCloseEndsEverything(t *testing.T) {
	for name, open := range map[string]storetest.Opener{"sqlite": engines.SQLite, "postgres": engines.Postgres} {
		t.Run(name, func(t *testing.T) {
			again := open(t)
			var before int
			for round := range 6 {
				s := storetest.Start(t, storetest.OpenEngine(t, again), sqlstore.Options{})
				w := storetest.Last()
				w.Key = string(rune('a' + round))
				if _, err := s.Write(t.Context(), w); err != nil {
					t.Fatal(err)
				}
				f := s.Follow(t.Context())
				sub := f.Subscribe(w.Resource, "")
				if _, _, err := s.Get(t.Context(), w.Resource, w.Key); err != nil {
					t.Fatal(err)
				}
				harness.Must(t, s.Close())
				if _, err := sub.Drain(); !errors.Is(err, sqlstore.ErrClosed) {
					t.Errorf("a subscription outlives its log: %v", err)
				}
				f.Close()
				if round == 0 { // by now, drivers have started what they keep for the process
					before = runtime.NumGoroutine()
				}
			}
			storetest.Eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}
