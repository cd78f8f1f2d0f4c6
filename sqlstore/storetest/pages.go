package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// sent counts the rows that an engine sends for reads of the log. It counts only reads with a context that carries sentKey, which
// excludes background work.
type sent struct {
	dialect.Engine
	rows atomic.Int64
}

type sentKey struct{}

// Query implements dialect.Engine. If the engine sends results as a whole, it also counts rows that the reader no longer needs.
func (e *sent) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	if ctx.Value(sentKey{}) == nil || !strings.Contains(statement, " log ") {
		return e.Engine.Query(ctx, statement, args, row)
	}
	var enough error
	err := e.Engine.Query(ctx, statement, args, func(r dialect.Row) error {
		e.rows.Add(1)
		if enough == nil {
			enough = row(r)
		}
		if e.Streams() {
			return enough
		}
		return nil
	})
	return cmp.Or(enough, err)
}

// testPages walks through objects of all sizes, now and at a revision before all of them changed. A page ends when its values
// become too large.
func testPages(t *testing.T, open Opener) {
	engine := &sent{Engine: OpenEngine(t, open(t))}
	s := Start(t, engine, sqlstore.Options{CacheBytes: sqlstore.NoCache})
	const objects = 40
	size := func(i, version int) int {
		if i < 10 {
			return 10
		}
		return (i*7 + version) % 10 * sqlstore.PageBytes / 8
	}
	value := func(i, version int) []byte {
		return fmt.Appendf(nil, `{"n":%d,"v":%d,"x":"%s"}`, i, version, bytes.Repeat([]byte("x"), size(i, version)))
	}
	var at [2]int64
	current := make([]*sqlstore.Record, objects)
	for version := range at {
		for i := range objects {
			if version == 1 && i%3 == 0 {
				continue
			}
			w := put(fmt.Sprintf("k%03d", i), fmt.Sprintf(`{"half":"%d"}`, i%2), current[i])
			w.Value = value(i, version)
			current[i] = must(t, s, w)
		}
		at[version] = revision(t, s).Revision
	}
	for _, q := range []sqlstore.Query{{}, {Revision: at[1]}, {Revision: at[0]}, {Revision: at[0], WithoutValues: true}, {Limit: 7}, {Limit: 7, Revision: at[0]}} {
		q.Resource = things
		name := fmt.Sprintf("%+v", q)
		var got []*sqlstore.Record
		for more, pages := true, 1; more; pages++ {
			engine.rows.Store(0)
			page, err := s.Page(context.WithValue(t.Context(), sentKey{}, true), q)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if rows := engine.rows.Load(); int(rows) != max(len(page.Records), 1) {
				t.Errorf("%s: the database sent %d rows for a page of %d", name, rows, len(page.Records))
			}
			bytes := 0
			for i, r := range page.Records {
				if bytes >= sqlstore.PageBytes {
					t.Fatalf("%s: a page continues with record %d after %d bytes of values", name, i, bytes)
				}
				bytes += len(r.Value)
			}
			if q.Limit > 0 && len(page.Records) > q.Limit || pages > objects {
				t.Fatalf("%s: page %d has %d records", name, pages, len(page.Records))
			}
			got, more = append(got, page.Records...), page.More
			if len(got) > 0 {
				q.After = got[len(got)-1].Key
			}
		}
		version := 1
		if q.Revision == at[0] {
			version = 0
		}
		same := slices.EqualFunc(got, current, func(r, newest *sqlstore.Record) bool {
			var i int
			_, err := fmt.Sscanf(r.Key, "k%03d", &i)
			v := version
			if i%3 == 0 {
				v = 0
			}
			want := value(i, v)
			if q.WithoutValues {
				want = nil
			}
			return err == nil && r.Key == newest.Key && bytes.Equal(r.Value, want)
		})
		if !same {
			t.Errorf("%s: the pages do not have all objects", name)
		}
	}
}
