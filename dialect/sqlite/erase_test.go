package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// TestErase has compaction, packing and forgetting leave removed values on pages, then purges one object. Afterwards none of them is in a file,
// and everything else is as it was: in files with pages of two sizes, and in one that other programs have made without auto_vacuum.
func TestErase(t *testing.T) {
	for name, made := range map[string]string{"": "", "large pages": "PRAGMA page_size = 4096; PRAGMA auto_vacuum = 2", "no pointer map": "PRAGMA auto_vacuum = 0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "sqube.db")
			if made != "" {
				other, err := sql.Open("sqlite", path)
				harness.Must(t, err)
				_, err = other.ExecContext(t.Context(), made+"; CREATE TABLE other (a); DROP TABLE other")
				harness.Must(t, errors.Join(err, other.Close()))
			}
			testErase(t, path)
		})
	}
}

func testErase(t *testing.T, path string) {
	e := opened(t, path)
	defer func() { _ = e.Close() }()
	l := &leaving{e: e, random: rand.New(rand.NewPCG(1, 2)), live: map[string]dialect.Write{}}
	for round := range 20 {
		l.write(t)
		if round%3 == 2 {
			l.compact(t, round%2 == 0)
		}
		if round%10 == 9 {
			_, err := e.Forget(t.Context(), l.last/2, 1000)
			harness.Must(t, err)
		}
	}
	harness.Must(t, os.WriteFile(path+"-schema1", []byte(l.removed[0]), 0o600))
	before := l.contents(t)
	if found := l.found(t, path); found < 100 {
		t.Errorf("only %d pieces of removed values are in the files before the purge", found)
	}
	harness.Must(t, e.Purge(t.Context(), &dialect.Block{First: 1, Until: 1, Resource: "things", Key: "none", Name: "none", Writers: `[["purge","","",""]]`, Versions: "[[0,0,0]]"}))
	closed(t, e) // as if the process had ended before
	e = opened(t, path)
	l.e = e
	reading := beginRead(t, path)
	left, err := e.Erase(t.Context())
	if err != nil || !left.Again || len(left.Left) != 1 || !strings.Contains(left.Left[0], path+"-wal") {
		t.Errorf("while another process reads, left are %+v, %v", left, err)
	}
	harness.Must(t, reading.Close())
	left, err = e.Erase(t.Context())
	if err != nil || left.Again || left.Kept != 0 || len(left.Left) != 0 {
		t.Fatalf("left are %+v, %v", left, err)
	}
	if found := l.found(t, path); found > 0 {
		t.Errorf("%d pieces of removed values are in the files", found)
	}
	if _, err := os.Stat(path + "-schema1"); err == nil {
		t.Error("a copy from before a schema change is left")
	}
	if after := l.contents(t); after != before {
		t.Errorf("the contents were\n%.2000s\nand are\n%.2000s", before, after)
	}
	if found := text(t, e, "SELECT group_concat(integrity_check, '; ') FROM pragma_integrity_check"); found != "ok" {
		t.Error(found)
	}
	l.write(t)
	l.compact(t, false)
	if _, err := e.Erase(t.Context()); err != nil || l.found(t, path) == 0 {
		t.Errorf("without a purge, all that was removed is erased, %v", err)
	}
}

// leaving are writes of objects whose values leave the log.
type leaving struct {
	e       *sqlite.Engine
	random  *rand.Rand
	live    map[string]dialect.Write
	last    int64
	removed []string
}

// write creates, updates and deletes some of 60 objects.
func (l *leaving) write(t *testing.T) {
	t.Helper()
	var group []dialect.Write
	for i := range 60 {
		key := fmt.Sprintf("%03d-%s", i, strings.Repeat("a-long-name", i%12))
		w, ok := l.live[key]
		switch {
		case l.random.IntN(3) == 0:
			continue
		case !ok:
			w = create(key, nil)
		case l.random.IntN(4) == 0:
			w.Operation = dialect.Delete
		default:
			w.Operation = dialect.Update
		}
		if ok {
			l.removed = append(l.removed, string(w.Value))
		}
		w.Value = nil
		if w.Operation != dialect.Delete {
			bytes := make([]byte, []int{20, 200, 500, 1000, 3000}[l.random.IntN(5)]+l.random.IntN(100))
			for i := range bytes {
				bytes[i] = byte(l.random.Int())
			}
			w.Value = []byte(hex.EncodeToString(bytes))
		}
		group = append(group, w)
	}
	made := commit(t, l.e, group)
	for i, w := range group {
		if w.Replaces = made.Revision(i); w.Operation == dialect.Delete {
			delete(l.live, w.Key)
		} else {
			l.live[w.Key] = w
		}
	}
	l.last = made.Last
}

// compact removes what was replaced, or moves it to blocks, which Forget removes.
func (l *leaving) compact(t *testing.T, move bool) {
	t.Helper()
	pack := func(rows []*dialect.Replaced, _ []*dialect.Block) (blocks []*dialect.Block, err error) {
		for _, r := range rows {
			blocks = append(blocks, &dialect.Block{
				First: r.ID, Until: r.ReplacedBy, Resource: r.Resource, Key: r.Key, Name: r.Name, Writers: `[["update","","",""]]`, Versions: "[[0,0,0]]", Data: r.Value,
			})
		}
		return blocks, nil
	}
	if !move {
		pack = nil
	}
	for n := 1; n > 0; {
		var err error
		n, err = l.e.Compact(t.Context(), l.last, 100, pack)
		harness.Must(t, err)
	}
	for more := true; more; {
		var err error
		more, err = l.e.Shrink(t.Context())
		harness.Must(t, err)
	}
}

// contents returns all rows.
func (l *leaving) contents(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, statement := range []string{"SELECT id || ' ' || coalesce(replaced_by, 0) || ' ' || key || ' ' || coalesce(value, '') FROM log ORDER BY id", "SELECT first_id || ' ' || key || ' ' || CAST(data AS TEXT) FROM past WHERE first_id > 1 ORDER BY first_id"} {
		err := l.e.Query(context.WithoutCancel(t.Context()), statement, nil, func(row dialect.Row) error {
			var line string
			err := row.Scan(&line)
			all.WriteString(line + "\n")
			return err
		})
		harness.Must(t, err)
	}
	return all.String()
}

const piece = 16

// found counts the pieces of removed values that are in the files of the database, and in no row of it.
func (l *leaving) found(t *testing.T, path string) (found int) {
	t.Helper()
	removed := map[[piece]byte]bool{}
	for _, value := range l.removed {
		for i := 0; i+piece <= len(value); i += piece {
			removed[[piece]byte([]byte(value[i:]))] = true
		}
	}
	each := func(text []byte, do func([piece]byte)) {
		for i := range max(0, len(text)-piece+1) {
			do([piece]byte(text[i:]))
		}
	}
	each([]byte(l.contents(t)), func(kept [piece]byte) { delete(removed, kept) })
	files, err := filepath.Glob(path + "*")
	harness.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		harness.Must(t, err)
		each(text, func(text [piece]byte) {
			if removed[text] {
				found++
			}
		})
	}
	return found
}
