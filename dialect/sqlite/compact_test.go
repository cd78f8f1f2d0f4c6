package sqlite_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// TestFileShrinks writes and deletes 40 MB. The file becomes small again, in steps that do not block writers for long.
func TestFileShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := opened(t, path)
	const objects, size = 10000, 4000
	kept := commit(t, e, []dialect.Write{create("kept", []byte(`{"kept":true}`))})
	value := fmt.Appendf(nil, `{"filler":"%s"}`, bytes.Repeat([]byte("x"), size))
	var last int64
	for from := 0; from < objects; from += 500 {
		creations, deletions := make([]dialect.Write, 500), make([]dialect.Write, 500)
		for i := range creations {
			creations[i] = create(fmt.Sprintf("big-%05d", from+i), value)
		}
		committed := commit(t, e, creations)
		for i, w := range creations {
			deletions[i] = dialect.Write{Operation: dialect.Delete, Resource: w.Resource, Key: w.Key, Replaces: committed.Revision(i), Labels: "{}", Fields: "{}"}
		}
		last = commit(t, e, deletions).Last
	}
	before := fileSize(t, path)
	if before < objects*size {
		t.Fatalf("the file only has %d bytes before compaction", before)
	}

	const batch = 500
	removed := 0
	for n := 1; n > 0; removed += n {
		var err error
		if n, err = e.Compact(t.Context(), last, batch, nil); err != nil {
			t.Fatal(err)
		}
		if n > batch {
			t.Errorf("one step removed %d rows", n)
		}
		// With many free pages, SQLite takes minutes to move the pages at the end.
		if free, err := strconv.Atoi(text(t, e, "PRAGMA freelist_count")); err != nil || free > sqlite.MaxFreePages+3000 {
			t.Errorf("after a step %d pages are free (%v)", free, err)
		}
	}
	for more, left := true, databaseSize(t, e); more; {
		var err error
		if more, err = e.Shrink(t.Context()); err != nil {
			t.Fatal(err)
		}
		if freed := left - databaseSize(t, e); freed > 1100<<10 {
			t.Errorf("one step freed %d bytes", freed)
		}
		left = databaseSize(t, e)
	}
	if left := fileSize(t, path+"-wal"); left > 6<<20 {
		t.Errorf("the write-ahead log has %d bytes", left)
	}
	if removed != 2*objects {
		t.Errorf("removed %d rows, want %d", removed, 2*objects)
	}
	if got := text(t, e, "SELECT id || value FROM log"); got != fmt.Sprint(kept.Last)+`{"kept":true}` {
		t.Errorf("the remaining row is %s", got)
	}
	if free := text(t, e, "PRAGMA freelist_count"); len(free) > 3 {
		t.Errorf("%s pages are free", free)
	}
	closed(t, e)
	if after := fileSize(t, path); after > before/10 {
		t.Errorf("the file has %d bytes, %d before", after, before)
	}
}

func commit(t testing.TB, e *sqlite.Engine, group []dialect.Write) dialect.Committed {
	t.Helper()
	committed, err := e.Commit(t.Context(), group)
	harness.Must(t, err)
	for i, landed := range committed.Landed {
		if !landed {
			t.Fatalf("%s conflicts", group[i].Key)
		}
	}
	return committed
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	harness.Must(t, err)
	return info.Size()
}

// TestPlanOfCompaction checks that compaction uses the index made for it.
func TestPlanOfCompaction(t *testing.T) {
	e := open(t, filepath.Join(t.TempDir(), "sqube.db"))
	var plan []string
	err := e.Query(t.Context(), "EXPLAIN QUERY PLAN "+sqlite.ReplacedRows, []any{1, 1}, func(row dialect.Row) error {
		var numbers [3]int
		var line string
		err := row.Scan(&numbers[0], &numbers[1], &numbers[2], &line)
		plan = append(plan, line)
		return err
	})
	got := strings.Join(plan, "\n")
	if err != nil || !strings.Contains(got, "INDEX log_replaced (replaced_by>? AND replaced_by<?)") || strings.Contains(got, "SCAN log") || strings.Contains(got, "TEMP B-TREE") {
		t.Errorf("compaction runs as (%v)\n%s", err, got)
	}
}

func databaseSize(t *testing.T, e *sqlite.Engine) int {
	t.Helper()
	n, err := strconv.Atoi(text(t, e, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"))
	harness.Must(t, err)
	return n
}

// TestFileThatCannotShrink compacts a file of another program, which has no incremental vacuum: its pages stay free, and
// compaction ends.
func TestFileThatCannotShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	other, err := sql.Open("sqlite", path)
	harness.Must(t, err)
	_, err = other.ExecContext(t.Context(), "CREATE TABLE other (a); DROP TABLE other")
	if err = errors.Join(err, other.Close()); err != nil {
		t.Fatal(err)
	}
	e := opened(t, path)
	defer e.Close()
	w := create("large", make([]byte, 4<<20))
	created := commit(t, e, []dialect.Write{w}).Last
	w = dialect.Write{Operation: dialect.Delete, Resource: w.Resource, Key: w.Key, Replaces: created, Labels: "{}", Fields: "{}"}
	deleted := commit(t, e, []dialect.Write{w}).Last
	if n, err := e.Compact(t.Context(), deleted, 10, nil); n == 0 || err != nil {
		t.Fatalf("removed %d rows, %v", n, err)
	}
	if more, err := e.Shrink(t.Context()); more || err != nil {
		t.Errorf("there is more to shrink: %v, %v", more, err)
	}
}
