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

// newUpdates creates 100 objects of the given size.
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

// commit updates n of them in one group.
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

// TestLogOfAnUpdate checks that an update adds little more than its own bytes to the write-ahead log.
func TestLogOfAnUpdate(t *testing.T) {
	for _, size := range []int{200, 1500, 5000} {
		path := filepath.Join(t.TempDir(), "sqube.db")
		u := newUpdates(t, open(t, path), size)
		// Until the id that replaces a row has no more digits than the row's own, and rows are no longer in the order in which
		// they were created.
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
