package sqlite_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
)

// updates updates objects in turn.
type updates struct {
	engine *sqlite.Engine
	writes []dialect.Write
	at     int
}

// newUpdates makes 100 objects of so many bytes.
func newUpdates(t testing.TB, e *sqlite.Engine, size int) *updates {
	t.Helper()
	u := &updates{engine: e}
	value := bytes.Repeat([]byte("x"), size)
	for i := range 100 {
		u.writes = append(u.writes, create(fmt.Sprintf("default/an-object-%d", i), value))
	}
	made := commit(t, e, u.writes)
	for i := range u.writes {
		u.writes[i].Operation, u.writes[i].Replaces = dialect.Update, made.Revision(i)
	}
	return u
}

// commit updates so many of them at once.
func (u *updates) commit(t testing.TB, n int) {
	t.Helper()
	group := make([]dialect.Write, n)
	for i := range group {
		group[i] = u.writes[(u.at+i)%len(u.writes)]
	}
	made := commit(t, u.engine, group)
	for i := range group {
		u.writes[(u.at+i)%len(u.writes)].Replaces = made.Revision(i)
	}
	u.at += n
}

// TestLogOfAnUpdate looks at how much an update adds to the write-ahead log: its own bytes, and few others.
func TestLogOfAnUpdate(t *testing.T) {
	for _, size := range []int{200, 1500, 5000} {
		path := filepath.Join(t.TempDir(), "sqube.db")
		u := newUpdates(t, open(t, path), size)
		// Until what replaces a row has no more digits than it, and rows are no longer where they were made, side by side.
		for range 128 {
			u.commit(t, 1)
		}
		const n = 50
		before := fileSize(t, path+"-wal")
		for range n {
			u.commit(t, 1)
		}
		each := int(fileSize(t, path+"-wal")-before) / n
		t.Logf("an update of %d bytes adds %d", size, each)
		if most := size*110/100 + 12*512; each < size || each > most {
			t.Errorf("an update of %d bytes adds %d to the write-ahead log, more than %d", size, each, most)
		}
	}
}

// BenchmarkUpdates tells how much time updates take, alone and in groups.
func BenchmarkUpdates(b *testing.B) {
	for _, size := range []int{1500, 5000} {
		for _, group := range []int{1, 16} {
			b.Run(fmt.Sprintf("%d bytes, %d at a time", size, group), func(b *testing.B) {
				u := newUpdates(b, open(b, filepath.Join(b.TempDir(), "sqube.db")), size)
				for b.Loop() {
					u.commit(b, group)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(u.at), "µs/write")
			})
		}
	}
}
