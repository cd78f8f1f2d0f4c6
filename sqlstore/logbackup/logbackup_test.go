package logbackup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/test/harness"
)

// database is a log with random writes, and a record of its contents at each revision.
type database struct {
	*sqlite.Engine
	path    string
	random  *rand.Rand
	live    map[string]dialect.LogRow // by key
	states  map[int64]map[string]string
	written map[int64]int64 // when, by revision
	before  map[int64]int64 // the newest revision before it, by revision
	newest  int64
	clock   int64

	versions map[string][]int64 // by key

	transactions bool // some writes are
	batchRows    int  // of followers
}

func newDatabase(t *testing.T, seed uint64) *database {
	t.Helper()
	d := &database{path: filepath.Join(t.TempDir(), "sqube.db"), random: rand.New(rand.NewPCG(seed, 0)), live: map[string]dialect.LogRow{}, states: map[int64]map[string]string{}, written: map[int64]int64{}, before: map[int64]int64{}, versions: map[string][]int64{}, clock: time.Now().UnixMilli(), batchRows: batchRows}
	var err error
	if d.Engine, err = sqlite.OpenWith(t.Context(), d.path, sqlite.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// write changes one of a few objects, or with transactions several in one.
func (d *database) write(t *testing.T) {
	t.Helper()
	d.clock++
	const objects = 8
	var group []dialect.Write
	if d.transactions && d.random.IntN(3) == 0 {
		for _, i := range d.random.Perm(objects)[:2+d.random.IntN(5)] {
			group = append(group, d.change(fmt.Sprintf("default/%d", i)))
		}
	} else {
		group = append(group, d.change(fmt.Sprintf("default/%d", d.random.IntN(objects))))
	}
	n := len(group)
	before := d.newest
	commit := func(group []dialect.Write) (dialect.Committed, error) { return d.Commit(t.Context(), group) }
	switch {
	case n > 1:
		name := fmt.Sprint("tx", before)
		group = slices.Insert(group, 0, dialect.Write{Operation: dialect.Create, Group: history.Transactions.Group, Resource: history.Transactions.Name, Key: name, Name: name, WrittenAt: d.clock, Labels: "{}", Fields: history.RecordFields(n), Value: []byte("{}")})
		for i := range group {
			group[i].AuditID = history.TransactionMark + name + "/"
		}
		commit = func(group []dialect.Write) (dialect.Committed, error) { return d.CommitAll(t.Context(), group, nil) }
	case d.random.IntN(5) == 0: // a conflict leaves a gap in the revisions
		group = append(group, dialect.Write{Operation: dialect.Update, Replaces: 1 << 40, Resource: "secrets", Key: "default/none", Labels: "{}", Fields: "{}"})
	}
	c, err := commit(group)
	if err != nil || !c.Landed[0] {
		t.Fatal(c, err)
	}
	for i, w := range group {
		if !c.Landed[i] || w.Resource != "secrets" {
			continue
		}
		d.versions[w.Key] = append(d.versions[w.Key], c.Revision(i))
		delete(d.live, w.Key)
		if w.Operation != dialect.Delete {
			d.live[w.Key] = dialect.LogRow{ID: c.Revision(i), Write: w}
		}
	}
	state := map[string]string{}
	for key, row := range d.live {
		state[key] = fmt.Sprintf("%+v", row)
	}
	for revision := before + 1; revision < c.Revision(0); revision++ {
		d.states[revision] = d.states[before]
	}
	d.newest = c.Last
	for revision := c.Revision(0); revision <= c.Last; revision++ { // one within a transaction stands for its end
		d.states[revision], d.written[revision], d.before[revision] = state, d.clock, before
	}
}

// change returns a write that changes an object.
func (d *database) change(key string) dialect.Write {
	before, exists := d.live[key]
	w := dialect.Write{Operation: dialect.Create, Replaces: before.ID, Resource: "secrets", Key: key, Namespace: "default", Name: key[8:], UID: fmt.Sprint(d.random.Uint64()), WrittenAt: d.clock, User: "jane", Labels: `{"a":"<&>"}`, Fields: "{}"}
	switch {
	case exists && d.random.IntN(3) == 0:
		w.Operation = dialect.Delete
	case exists:
		w.Operation = dialect.Update
	}
	if w.Operation != dialect.Delete {
		w.Value = fmt.Appendf(nil, "{\"value\": \"<%d> \u2028\"}", d.random.Uint64())
		if d.random.IntN(2) == 0 { // as if encrypted
			w.Value = append([]byte("k8s:enc:aesgcm:v1:key:\xff\x00"), w.Value...)
		}
	}
	return w
}

// follow backs up the database to a place, like a new process.
func (d *database) follow(t *testing.T, place Place, o Options) *Follower {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	o.SnapshotInterval, o.Keep = cmp.Or(o.SnapshotInterval, time.Hour), cmp.Or(o.Keep, time.Hour)
	f, err := follow(t.Context(), &Follower{place: place, options: o, mergeFiles: 3, batchRows: d.batchRows, open: func(ctx context.Context) (dialect.Reader, error) {
		return sqlite.OpenReader(ctx, d.path)
	}})
	if err != nil && !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	return f
}

// stepped has a follower take a step, which succeeds.
func (f *Follower) stepped(t *testing.T) {
	t.Helper()
	harness.Must(t, f.Step(t.Context()))
}

// opened opens a place.
func opened(t *testing.T, place Place) *Backup {
	t.Helper()
	b, err := Open(t.Context(), place)
	harness.Must(t, err)
	return b
}

// restores checks that the place has what the database had at a revision, or at the time when it was written.
func (d *database) restores(t *testing.T, place Place, revision int64, byTime bool) {
	t.Helper()
	b := opened(t, place)
	asked, moment := revision, time.Time{}
	if byTime {
		asked, moment = 0, time.UnixMilli(d.written[revision])
	}
	s, err := b.Fetch(t.Context(), asked, moment, 0, t.TempDir())
	if err != nil {
		t.Fatalf("revision %d (time %v): %v; there are %+v", revision, byTime, err, b.Spans)
	}
	got := map[string]string{}
	if err := s.Rows(t.Context(), func(row *dialect.LogRow) error {
		if row.Resource == "secrets" {
			got[row.Key] = fmt.Sprintf("%+v", *row)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, d.states[s.Revision]) || !maps.Equal(got, d.states[revision]) {
		t.Fatalf("at revision %d (restored as %d) want\n%v\ngot\n%v", revision, s.Revision, d.states[revision], got)
	}
}

var errInjected = errors.New("injected")

// faulty is a place whose operations sometimes fail, before or after they have taken effect.
type faulty struct {
	folder
	random *rand.Rand
}

func (p faulty) fails() error {
	if p.random.IntN(6) == 0 {
		return errInjected
	}
	return nil
}

func (p faulty) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := p.fails(); err != nil {
		return err
	}
	return errors.Join(p.folder.Put(ctx, name, write), p.fails())
}

func (p faulty) Remove(ctx context.Context, name string) error {
	if err := p.fails(); err != nil {
		return err
	}
	return errors.Join(p.folder.Remove(ctx, name), p.fails())
}

// followed writes, and follows with failures and restarts for some steps. It calls then after each that has succeeded or failed.
func (d *database) followed(t *testing.T, place faulty, o Options, steps int, then func(*Follower)) {
	t.Helper()
	var f *Follower
	for range steps {
		if d.random.IntN(12) == 0 || f == nil || f.current == nil {
			f = d.follow(t, place, o)
		}
		if f == nil || f.current == nil {
			continue
		}
		for range d.random.IntN(4) {
			d.write(t)
		}
		if err := f.Step(t.Context()); err != nil && !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		then(f)
	}
}

// TestEveryMoment writes, follows with failures and restarts, and restores each revision.
func TestEveryMoment(t *testing.T) {
	for seed := range uint64(3) {
		d := newDatabase(t, seed)
		d.transactions, d.batchRows = true, 4
		d.write(t)
		place := faulty{folder(t.TempDir()), d.random}
		d.followed(t, place, Options{}, 100, func(f *Follower) {
			if d.random.IntN(40) == 0 && f.current != nil && len(f.current.segments) > 0 {
				f.began = time.Time{} // time for a snapshot
			}
		})
		d.batchRows = batchRows
		d.write(t)
		f := d.follow(t, place.folder, Options{})
		if f.Shipped() != d.newest {
			t.Fatalf("seed %d: the place is complete up to %d, want the newest revision, %d", seed, f.Shipped(), d.newest)
		}
		b := opened(t, place.folder)
		for revision := b.Spans[0].From; revision <= d.newest; revision += 1 + d.random.Int64N(5) {
			d.restores(t, place.folder, revision, d.random.IntN(2) == 0)
		}
		d.restores(t, place.folder, d.newest, false)
	}
}

// TestMerge merges files.
func TestMerge(t *testing.T) {
	d := newDatabase(t, 1)
	place := folder(t.TempDir())
	f := d.follow(t, place, Options{})
	first := d.newest
	for range 3*3*3 + 3 + 1 {
		d.write(t)
		f.stepped(t)
	}
	var levels []int
	for _, s := range d.follow(t, place, Options{}).current.segments {
		levels = append(levels, s.level)
	}
	if !slices.Equal(levels, []int{2, 2, 2, 1, 0}) {
		t.Errorf("the files have levels %v", levels)
	}
	for revision := first + 1; revision <= d.newest; revision++ {
		d.restores(t, place, revision, false)
	}
}

// TestCompactedRows compacts rows before they are backed up.
func TestCompactedRows(t *testing.T) {
	d := newDatabase(t, 1)
	d.write(t)
	place := folder(t.TempDir())
	d.follow(t, place, Options{})
	d.write(t)
	followed := d.follow(t, place, Options{}).Shipped()
	for range 20 {
		d.write(t)
	}
	if _, err := d.Compact(t.Context(), d.newest-1, 1000, nil); err != nil {
		t.Fatal(err)
	}
	begins := d.follow(t, place, Options{}).Shipped()
	d.write(t)
	d.follow(t, place, Options{})
	b := opened(t, place)
	if len(b.Spans) != 2 || b.Spans[0].To != followed || b.Spans[1].From != begins || b.Spans[1].To != d.newest {
		t.Errorf("the place has %+v", b.Spans)
	}
	for _, revision := range []int64{followed, begins, d.newest} {
		d.restores(t, place, revision, false)
	}
	if _, err := b.Fetch(t.Context(), followed+1, time.Time{}, 0, t.TempDir()); err == nil || !strings.Contains(err.Error(), "does not hold revision") {
		t.Errorf("a compacted revision is restored: %v", err)
	}
	b.Spans[1].Began = b.Spans[0].Ended.Add(time.Hour)
	if _, err := b.Fetch(t.Context(), 0, b.Spans[0].Ended.Add(time.Minute), 0, t.TempDir()); err == nil || !strings.Contains(err.Error(), "nothing was backed up between") {
		t.Errorf("a time in a gap is restored: %v", err)
	}
	if _, err := b.Fetch(t.Context(), 0, time.UnixMilli(1), 0, t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds nothing as old as that") {
		t.Errorf("a time before the first span is restored: %v", err)
	}
}

// querying is a reader that calls after once, after its first query.
type querying struct {
	dialect.Reader
	after func()
}

func (q *querying) Query(ctx context.Context, statement string, args []any, scan func(dialect.Row) error) error {
	err := q.Reader.Query(ctx, statement, args, scan)
	if q.after != nil {
		q.after()
		q.after = nil
	}
	return err
}

// TestCompactedBetweenQueries compacts the only new row, a deletion, after the follower has seen that there is one.
func TestCompactedBetweenQueries(t *testing.T) {
	d := newDatabase(t, 1)
	place := folder(t.TempDir())
	d.write(t)
	f := d.follow(t, place, Options{})
	for live := 0; len(d.live) >= live; d.write(t) {
		f.stepped(t)
		live = len(d.live)
	}
	f.open = func(ctx context.Context) (dialect.Reader, error) {
		reader, err := sqlite.OpenReader(ctx, d.path)
		return &querying{reader, func() {
			if _, err := d.Compact(ctx, d.newest, 1000, nil); err != nil {
				t.Error(err)
			}
		}}, err
	}
	f.stepped(t)
	d.restores(t, place, d.newest, false)
}

// TestAnotherDatabase backs up a database to a place that has a backup of another one.
func TestAnotherDatabase(t *testing.T) {
	place := folder(t.TempDir())
	longer, other, shorter := newDatabase(t, 1), newDatabase(t, 2), newDatabase(t, 3)
	for range 10 {
		longer.write(t)
		other.write(t)
	}
	other.write(t)
	shorter.write(t)
	for n, d := range []*database{longer, other, shorter} {
		d.follow(t, place, Options{})
		d.write(t)
		d.follow(t, place, Options{})
		b := opened(t, place)
		if len(b.Spans) != n+1 {
			t.Fatalf("after %d databases the place has %+v", n+1, b.Spans)
		}
		d.restores(t, place, d.newest, false)
	}
}

// full is a folder without room for snapshots while there are two generations.
type full struct{ folder }

func (p full) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if there, err := os.ReadDir(string(p.folder)); strings.HasSuffix(name, snapshotName) && (err != nil || len(there) > 1) {
		return errors.Join(errInjected, err)
	}
	return p.folder.Put(ctx, name, write)
}

// TestKeepMakesRoom checks that old generations are removed even if there is no room for a new one.
func TestKeepMakesRoom(t *testing.T) {
	d := newDatabase(t, 1)
	place := full{folder(t.TempDir())}
	f := d.follow(t, place, Options{SnapshotInterval: time.Nanosecond})
	for range 2 {
		d.write(t)
		if err := f.Step(t.Context()); err != nil && !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
	}
	f.options.Keep = time.Nanosecond
	if err := f.Step(t.Context()); !errors.Is(err, errInjected) {
		t.Fatalf("there was room for a third generation: %v", err)
	}
	f.stepped(t)
	d.restores(t, place, d.newest, false)
}
