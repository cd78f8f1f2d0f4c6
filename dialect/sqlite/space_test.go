package sqlite_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// TestWriteAheadLogUnderReads writes much while reads always overlap.
func TestWriteAheadLogUnderReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := open(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`)), create("b", []byte(`{}`)), create("c", []byte(`{}`))})

	ended := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				err := e.Query(t.Context(), "SELECT id FROM log LIMIT 3", nil, func(dialect.Row) error {
					time.Sleep(3 * time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	}
	value := fmt.Appendf(nil, `{"filler":"%s"}`, bytes.Repeat([]byte("x"), 20000))
	var largest int64
	for i := range 120 {
		group := make([]dialect.Write, 50)
		for j := range group {
			group[j] = create(fmt.Sprintf("%d-%d", i, j), value)
		}
		commit(t, e, group)
		largest = max(largest, fileSize(t, path+"-wal"))
	}
	close(ended)
	readers.Wait()
	if largest > 64<<20 {
		t.Errorf("after 120 MB of writes the write-ahead log had %d bytes", largest)
	}
}

// TestSpace compares what the engine reports with its files.
func TestSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := open(t, path)
	value := bytes.Repeat([]byte("x"), 100_000)
	made := commit(t, e, []dialect.Write{create("a", value), create("b", value)})
	last := commit(t, e, []dialect.Write{{Operation: dialect.Delete, Resource: "pods", Key: "a", Replaces: made.Revision(0), Labels: "{}", Fields: "{}"}}).Last
	if _, err := e.Compact(t.Context(), last, 10, nil); err != nil {
		t.Fatal(err)
	}
	space, err := e.Space(t.Context())
	harness.Must(t, err)
	if space.WAL != fileSize(t, path+"-wal") || space.Database < 200_000 || space.Free < 90_000 || space.Free > space.Database || space.HeldBack != nil {
		t.Errorf("it reports %+v", space)
	}
}

// beginRead begins a read of the file at path, like another process would. It ends with the test if not before.
func beginRead(t *testing.T, path string) *sql.Rows {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	harness.Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	reader, err := db.Query("SELECT 1 FROM log")
	if err != nil || !reader.Next() {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	return reader
}

// TestHeldWriteAheadLog reads for so long that the write-ahead log becomes large.
func TestHeldWriteAheadLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := open(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	held := func() []string {
		t.Helper()
		space, err := e.Space(t.Context())
		harness.Must(t, err)
		return space.HeldBack
	}
	reader := beginRead(t, path)
	if report := held(); report != nil {
		t.Errorf("before the read, it reports %q", report)
	}
	// Stands in for many writes, which would take long: SQLite knows which part of the file it has written.
	harness.Must(t, os.Truncate(path+"-wal", 256<<20))
	commit(t, e, []dialect.Write{create("b", []byte(`{}`))})
	if report := held(); len(report) != 1 || !strings.Contains(report[0], "holds back the write-ahead log "+path+"-wal: end other programs") {
		t.Errorf("it reports %q", report)
	}
	closed(t, reader)
	if _, err := e.Shrink(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report := held(); report != nil {
		t.Errorf("after the read, it reports %q", report)
	}
}

// TestLogStartsOver has the write-ahead log grow under a read. Once it starts over, it fits into the reserve again.
func TestLogStartsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := open(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	reader := beginRead(t, path)
	value := bytes.Repeat([]byte("x"), 1<<20)
	for i := range 12 {
		commit(t, e, []dialect.Write{create(fmt.Sprint(i), value)})
	}
	if size := fileSize(t, path+"-wal"); size < 12<<20 {
		t.Errorf("under the read, the log has %d bytes", size)
	}
	closed(t, reader)
	for _, key := range []string{"b", "c"} {
		commit(t, e, []dialect.Write{create(key, []byte(`{}`))})
	}
	if size := fileSize(t, path+"-wal"); size > 8<<20 {
		t.Errorf("after the read, the log has %d bytes", size)
	}
}

// TestLeftoverThatIsRead opens a file while a read keeps the write-ahead log that another process left: the log is written again.
func TestLeftoverThatIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sqube.db")
	before := opened(t, path)
	made := commit(t, before, []dialect.Write{create("a", []byte(`{}`))})
	beginRead(t, path)
	closed(t, before)
	longAgo := time.Unix(1, 0)
	harness.Must(t, os.Chtimes(path+"-wal", longAgo, longAgo))
	e := open(t, path)
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 || info.ModTime().Equal(longAgo) {
		t.Errorf("the log is as it was: %v %v", info, err)
	}
	if next := commit(t, e, []dialect.Write{create("b", []byte(`{}`))}); next.Last != made.Last+1 {
		t.Errorf("after revision %d follows %d", made.Last, next.Last)
	}
}

// TestBatchesOfLargeRows removes rows of 200 KB a few at a time.
func TestBatchesOfLargeRows(t *testing.T) {
	e := open(t, filepath.Join(t.TempDir(), "sqube.db"))
	const objects = 40
	value := []byte(strings.Repeat("x", 200_000))
	var last int64
	for i := range objects {
		w := create(fmt.Sprint(i), value)
		made := commit(t, e, []dialect.Write{w})
		last = commit(t, e, []dialect.Write{{Operation: dialect.Delete, Resource: w.Resource, Key: w.Key, Replaces: made.Last, Labels: "{}", Fields: "{}"}}).Last
	}
	batches, removed := 0, 0
	for n := 1; n > 0; removed += n {
		var err error
		if n, err = e.Compact(t.Context(), last, 500, nil); err != nil {
			t.Fatal(err)
		}
		batches++
	}
	if removed != 2*objects || batches < objects/10 {
		t.Errorf("%d rows were removed in %d batches", removed, batches)
	}
}
