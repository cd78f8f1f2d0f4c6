package inspect_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestRevisionAt looks for moments in logs whose times go back, as earlier versions wrote them.
func TestRevisionAt(t *testing.T) {
	const forgotten, doubt = -1, true
	type asked struct {
		at       int // minutes before now
		revision int64
		doubt    bool
	}
	year := 365 * 24 * 60
	for name, log := range map[string]struct {
		times []int // in minutes before now, of revisions 101 and up
		want  []asked
	}{
		"in order":                        {[]int{9, 7, 7, 5}, []asked{{10, forgotten, false}, {9, 101, false}, {8, 101, false}, {7, 103, false}, {6, 103, false}, {1, 104, false}}},
		"the last server's clock is slow": {[]int{9, 7, 17, 16}, []asked{{20, forgotten, false}, {16, forgotten, false}, {9, 101, doubt}, {8, 101, doubt}, {7, 104, false}}},
		"servers take turns":              {[]int{20, 28, 18, 26, 16}, []asked{{25, forgotten, false}, {20, 102, doubt}, {19, 102, doubt}, {17, 104, false}, {16, 105, false}}},
		"a boot in 1976":                  {[]int{9, 50 * year, 7}, []asked{{8, 102, false}, {7, 103, false}, {10, forgotten, false}}},
		"2099 by mistake":                 {[]int{9, -70 * year, 7, 5}, []asked{{8, 101, false}, {7, 103, false}, {6, 103, false}, {4, 104, false}}},
	} {
		for engine, open := range map[string]storetest.Opener{"sqlite": engines.SQLite, "postgres": engines.Postgres} {
			t.Run(name+"/"+engine, func(t *testing.T) {
				now := time.Now().Add(-time.Second)
				minutesAgo := func(n int) time.Time { return now.Add(-time.Duration(n) * time.Minute) }
				e := storetest.OpenEngine(t, open(t))
				defer e.Close()
				last := int64(100 + len(log.times))
				err := e.Load(t.Context(), dialect.Position{Revision: last, Compacted: 101}, func(add func(*dialect.LogRow) error) error {
					for i, ago := range log.times {
						w := write("secrets", "ns", fmt.Sprint(i))
						w.WrittenAt = minutesAgo(ago).UnixMilli()
						if err := add(&dialect.LogRow{ID: int64(101 + i), Write: w}); err != nil {
							return err
						}
					}
					return nil
				}, nil)
				harness.Must(t, err)
				for _, want := range log.want {
					m, err := inspect.RevisionAt(t.Context(), e, minutesAgo(want.at))
					if want.revision == forgotten {
						if !errors.Is(err, inspect.ErrForgotten) || !strings.Contains(err.Error(), "the earliest moment is "+inspect.Stamp(minutesAgo(log.times[0]))) {
							t.Errorf("%d minutes ago: revision %+v, %v", want.at, m, err)
						}
						continue
					}
					if err != nil || m.Revision != want.revision || (m.Doubt() != "") != want.doubt {
						t.Errorf("%d minutes ago: %+v (%q), %v; want revision %d, doubt: %v", want.at, m, m.Doubt(), err, want.revision, want.doubt)
					}
				}
			})
		}
	}
}

// TestRevisionAtOfRemovedRow looks for a moment when the newest row, a deletion, is no longer kept.
func TestRevisionAtOfRemovedRow(t *testing.T) {
	for name, open := range map[string]storetest.Opener{"sqlite": engines.SQLite, "postgres": engines.Postgres} {
		t.Run(name, func(t *testing.T) {
			e := storetest.OpenEngine(t, open(t))
			defer e.Close()
			ago := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
			w := write("secrets", "ns", "a")
			w.WrittenAt = ago.Add(-time.Minute).UnixMilli()
			created, err := e.Commit(t.Context(), []dialect.Write{w})
			harness.Must(t, err)
			w.Operation, w.Replaces, w.Value, w.WrittenAt = dialect.Delete, created.Last, nil, ago.UnixMilli()
			deleted, err := e.Commit(t.Context(), []dialect.Write{w})
			harness.Must(t, err)
			if _, err := e.Compact(t.Context(), deleted.Last, 10, nil); err != nil {
				t.Fatal(err)
			}
			if m, err := inspect.RevisionAt(t.Context(), e, ago); err != nil || m.Revision != deleted.Last || m.Doubt() != "" {
				t.Errorf("when it was deleted: %+v, %v", m, err)
			}
			if m, err := inspect.RevisionAt(t.Context(), e, ago.Add(-time.Millisecond)); !errors.Is(err, inspect.ErrForgotten) {
				t.Errorf("before: %+v, %v", m, err)
			}
			if kept, err := inspect.Read(t.Context(), e); err != nil || !kept.Earliest.Equal(ago) || !kept.Newest.Equal(ago) {
				t.Errorf("it keeps %+v, %v", kept, err)
			}
		})
	}
}
