package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// marked is a database whose files are put back.
type marked struct {
	path  string
	store *sqlstore.Store
	seen  int64 // the last revision that was issued
}

var markedPods = sqlstore.Resource{Name: "pods"}

func (m *marked) serve(t *testing.T) {
	t.Helper()
	m.store = storetest.Start(t, opened(t, m.path), sqlstore.Options{})
}

func (m *marked) write(t *testing.T, keys ...string) (last int64) {
	t.Helper()
	for _, key := range keys {
		revision, err := m.store.Write(t.Context(), &sqlstore.Write{Operation: dialect.Create, Resource: markedPods, Key: key, Name: key, Labels: "{}", Fields: "{}", Value: []byte(`{}`)})
		harness.Must(t, err)
		if revision <= m.seen {
			t.Fatalf("%s gets revision %d, after %d", key, revision, m.seen)
		}
		m.seen = revision
	}
	return m.seen
}

// crash leaves the files as a kill of the process would.
func (m *marked) crash(t *testing.T) {
	t.Helper()
	left := m.contents(t, "", "-wal")
	harness.Must(t, os.Link(m.path+"-mark", m.path+"-mark.left"))
	closed(t, m.store)
	m.put(t, left)
	harness.Must(t, os.Rename(m.path+"-mark.left", m.path+"-mark"))
}

func (m *marked) contents(t *testing.T, suffixes ...string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, suffix := range suffixes {
		data, err := os.ReadFile(m.path + suffix)
		harness.Must(t, err)
		found[suffix] = data
	}
	return found
}

// put writes files, those that exist in place.
func (m *marked) put(t *testing.T, files map[string][]byte) {
	t.Helper()
	for suffix, data := range files {
		harness.Must(t, os.WriteFile(m.path+suffix, data, 0o600))
	}
}

// watch returns the keys that a watch from a revision gets.
func (m *marked) watch(t *testing.T, from int64) (keys []string, err error) {
	t.Helper()
	at, err := m.store.Position(t.Context())
	harness.Must(t, err)
	f := m.store.Follow(t.Context())
	defer f.Close()
	err = f.Replay(markedPods, "", nil, from, at.Revision, func(c *sqlstore.Change) error {
		keys = append(keys, c.Record.Key)
		f.Done(c)
		return nil
	})
	return keys, err
}

// logged returns what is logged until the test ends.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	log, before := &bytes.Buffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

// TestOlderState puts older states of a database in its place. No revision is issued twice, who knows a lost one starts over, all others
// continue, and the log says why, once.
func TestOlderState(t *testing.T) {
	t.Cleanup(sqlite.Reboot("same"))
	for _, test := range []struct {
		name string
		// put puts the older state in place. older are the files as they were after "b", when the database was closed, and backup is one
		// of that time. Later, "c" and "d" were written.
		put  func(t *testing.T, m *marked, older map[string][]byte, backup string)
		says string // "" for nothing
		kept string // what is there of a, b, c, d
	}{
		{"nothing", func(t *testing.T, m *marked, _ map[string][]byte, _ string) { closed(t, m.store) }, "", "abcd"},
		{"crash", func(t *testing.T, m *marked, _ map[string][]byte, _ string) { m.crash(t) }, "", "abcd"},
		{"database copied over", func(t *testing.T, m *marked, older map[string][]byte, _ string) {
			closed(t, m.store)
			m.put(t, map[string][]byte{"": older[""]})
		}, "this is an older state", "ab"},
		{"all copied over", func(t *testing.T, m *marked, older map[string][]byte, _ string) {
			closed(t, m.store)
			m.put(t, older)
		}, "and the mark beside it were copied to their place", "ab"},
		{"backup in place", func(t *testing.T, m *marked, _ map[string][]byte, backup string) {
			closed(t, m.store)
			harness.Must(t, os.Rename(backup, m.path))
		}, "this is an older state", "ab"},
		{"backup in place after a crash", func(t *testing.T, m *marked, _ map[string][]byte, backup string) {
			m.crash(t)
			harness.Must(t, errors.Join(os.Remove(m.path+"-wal"), os.Rename(backup, m.path)))
		}, "that was not closed", "ab"},
		{"backup in an empty folder", func(t *testing.T, m *marked, _ map[string][]byte, backup string) {
			closed(t, m.store)
			harness.Must(t, errors.Join(os.Remove(m.path+"-mark"), os.Rename(backup, m.path)))
		}, "was copied to its place", "ab"},
		{"all moved to a new folder", func(t *testing.T, m *marked, _ map[string][]byte, _ string) {
			closed(t, m.store)
			folder := filepath.Dir(m.path)
			harness.Must(t, os.Rename(folder, folder+"-moved"))
			m.path = filepath.Join(folder+"-moved", filepath.Base(m.path))
		}, "", "abcd"},
		{"log lost", func(t *testing.T, m *marked, _ map[string][]byte, _ string) {
			m.crash(t)
			harness.Must(t, os.Remove(m.path+"-wal"))
		}, "if the log was deleted, the last commits are", "ab"},
		{"log cut", func(t *testing.T, m *marked, _ map[string][]byte, _ string) {
			m.crash(t)
			info, err := os.Stat(m.path + "-wal")
			harness.Must(t, err)
			harness.Must(t, os.Truncate(m.path+"-wal", info.Size()/10))
		}, "", "ab"},
		{"no mark", func(t *testing.T, m *marked, _ map[string][]byte, _ string) {
			closed(t, m.store)
			harness.Must(t, os.Remove(m.path+"-mark"))
		}, "", "abcd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "data")
			m := &marked{path: filepath.Join(folder, "sqube.db")}
			m.serve(t)
			m.write(t, "a", "b")
			early := m.seen - 1
			closed(t, m.store)
			older, backup := m.contents(t, "", "-mark"), backedUp(t, m.path)
			m.serve(t)
			m.write(t, "c", "d")
			test.put(t, m, older, backup)

			log := logged(t)
			m.serve(t)
			if !strings.Contains(log.String(), test.says) || test.says == "" && log.Len() > 0 {
				t.Errorf("the log has %q, not %q", log, test.says)
			}
			lost := m.seen
			m.write(t, "e")
			for from, want := range map[int64]string{early: test.kept[1:] + "e", lost - 2: test.kept[2:] + "e"} {
				if keys, err := m.watch(t, from); err != nil || strings.Join(keys, "") != want {
					t.Errorf("a watch from revision %d gets %v, %v, not %s", from, keys, err, want)
				}
			}
			for _, from := range []int64{lost - 1, lost} {
				want := error(nil)
				if test.kept == "ab" {
					want = sqlstore.ErrCompacted
				}
				if keys, err := m.watch(t, from); !errors.Is(err, want) {
					t.Errorf("a watch from revision %d gets %v, %v, not %v", from, keys, err, want)
				}
			}

			closed(t, m.store)
			log.Reset()
			before := m.seen
			m.serve(t)
			if next := m.write(t, "f"); next != before+1 || log.Len() > 0 {
				t.Errorf("after the next start, revision %d follows %d, and the log has %q", next, before, log)
			}
		})
	}
}

// TestCrashesInARow crashes again and again. Who knows a revision from before the first of them still continues.
func TestCrashesInARow(t *testing.T) {
	log := logged(t)
	m := &marked{path: filepath.Join(t.TempDir(), "sqube.db")}
	m.serve(t)
	first := m.write(t, "a")
	want := []string(nil)
	for i := range 4 {
		if i != 2 { // nothing is written between two of them
			key := fmt.Sprint("b", i)
			m.write(t, key)
			want = append(want, key)
		}
		m.crash(t)
		m.serve(t)
		if keys, err := m.watch(t, first); err != nil || !slices.Equal(keys, want) {
			t.Errorf("after crash %d, a watch gets %v, %v, not %v", i+1, keys, err, want)
		}
	}
	if log.Len() > 0 {
		t.Errorf("the log has %q", log)
	}
}

// TestMarkStaysAhead commits more than the mark is ahead, at once and bit by bit, and crashes.
func TestMarkStaysAhead(t *testing.T) {
	t.Cleanup(sqlite.MarkAhead(2000))
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := opened(t, path)
	for i := range 30 {
		group := make([]dialect.Write, 300)
		for j := range group {
			group[j] = create(fmt.Sprint(i, "-", j), []byte(`{}`))
		}
		committed := commit(t, e, group)
		if most := sqlite.MarkOf(t, path); most < committed.Last+dialect.MaxHeld {
			t.Fatalf("the mark is %d at revision %d", most, committed.Last)
		}
	}
}

// TestDamagedLog damages the write-ahead log of a killed process. What SQLite would drop without a word is an error, unless a crash can
// have left it.
func TestDamagedLog(t *testing.T) {
	m := &marked{path: filepath.Join(t.TempDir(), "sqube.db")}
	m.serve(t)
	for i := range 20 {
		m.write(t, fmt.Sprint(i))
	}
	m.crash(t)
	files := m.contents(t, "", "-wal")
	whole := files["-wal"]
	const frame = 24 + 512
	frames := (len(whole) - 32) / frame
	var commits []int // where frames end that end a commit
	for i := range frames {
		at := 32 + i*frame
		if bytes.Equal(whole[at+8:at+16], whole[16:24]) && !bytes.Equal(whole[at+4:at+8], make([]byte, 4)) { // others are from before the log began anew
			commits = append(commits, at+frame)
		}
	}
	last, before := commits[len(commits)-1], commits[len(commits)-2]
	for name, test := range map[string]struct {
		from, to int
		damaged  bool
	}{
		"middle":          {last / 2, last/2 + 2000, true},
		"header":          {0, 32, true},
		"beginning":       {0, 2000, true},
		"one byte":        {32 + 3*frame + 100, 32 + 3*frame + 101, true},
		"the last commit": {before + 50, before + 60, false},
		"the end":         {last, len(whole), false},
	} {
		t.Run(name, func(t *testing.T) {
			log := bytes.Clone(whole)
			for i := test.from; i < test.to; i++ {
				log[i] ^= byte(i*7 + 1)
			}
			killed := &marked{path: filepath.Join(t.TempDir(), "sqube.db")}
			killed.put(t, map[string][]byte{"": files[""], "-wal": log})
			const says = "-wal is damaged at byte "
			e, err := sqlite.Open(context.Background(), killed.path)
			if err == nil {
				harness.Must(t, e.Close())
			}
			if test.damaged != (err != nil && strings.Contains(err.Error(), says)) {
				t.Errorf("open: %v", err)
			}
			if !test.damaged {
				return
			}
			if err := sqlite.Complete(killed.path); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("complete: %v", err)
			}
			// A restore puts it aside as it is.
			aside, err := sqlite.Replace(t.Context(), killed.path, true, time.Now(), func(e *sqlite.Engine, _ dialect.End) error {
				_, err := e.Commit(t.Context(), []dialect.Write{create("c", []byte(`{}`))})
				return err
			})
			harness.Must(t, err)
			if left, err := os.ReadFile(aside + "-wal"); err != nil || !bytes.Equal(left, log) {
				t.Errorf("the log was not put aside: %v", err)
			}
		})
	}
}
