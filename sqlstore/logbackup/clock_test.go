package logbackup

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// generation makes a new generation, with some rows.
func (d *database) generation(t *testing.T, f *Follower) {
	t.Helper()
	d.write(t)
	f.renewed(t)
	d.write(t)
	f.stepped(t)
}

// renewed has a follower take a step, and make a snapshot.
func (f *Follower) renewed(t *testing.T) {
	t.Helper()
	f.stepped(t)
	f.began = time.Time{}
	f.stepped(t)
}

// TestKeepWithWrongClocks checks that generations of minutes ago stay, whatever the clock shows now or showed when they were written.
func TestKeepWithWrongClocks(t *testing.T) {
	d := newDatabase(t, 1)
	place := folder(t.TempDir())
	for _, clock := range []time.Time{{}, time.Unix(6*365*24*3600, 0), {}, time.Now().AddDate(70, 0, 0), {}} {
		f := d.follow(t, place, Options{Keep: time.Hour})
		d.generation(t, f)
		if clock.IsZero() {
			continue
		}
		files, err := filepath.Glob(place.path("*/*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			harness.Must(t, os.Chtimes(file, clock, clock))
		}
	}
	b := opened(t, place)
	if len(b.Spans) < 5 {
		t.Fatalf("the place has %+v", b)
	}
	for revision := b.Spans[0].From; revision <= d.newest; revision++ {
		d.restores(t, place, revision, false)
	}
}

// TestKeepWhatIsFollowed checks that the age of generations goes on after a restart, and that files without one are removed.
func TestKeepWhatIsFollowed(t *testing.T) {
	d := newDatabase(t, 1)
	place := folder(t.TempDir())
	for range 4 {
		f := d.follow(t, place, Options{Keep: 90 * time.Minute})
		f.before += time.Hour
		d.generation(t, f)
	}
	f := d.follow(t, place, Options{})
	if followed := f.followed(); followed < 4*time.Hour || followed > 5*time.Hour {
		t.Errorf("it was followed for %s", followed)
	}
	b := opened(t, place)
	if len(b.Spans) != 3 {
		t.Fatalf("the place has %+v", b)
	}
	// An interrupted removal leaves segments.
	harness.Must(t, os.Remove(place.path(b.Spans[0].snapshot.Name)))
	f = d.follow(t, place, Options{Keep: time.Nanosecond})
	d.generation(t, f)
	entries, err := os.ReadDir(string(place))
	if err != nil || len(entries) != 1 {
		t.Errorf("the place has %v, %v", entries, err)
	}
	d.restores(t, place, d.newest, false)
}

// TestMomentsWithWrongClocks restores moments from a place in which times go back, as earlier versions wrote it.
func TestMomentsWithWrongClocks(t *testing.T) {
	d := newDatabase(t, 1)
	place := folder(t.TempDir())
	now := time.Now().Add(-time.Second)
	minutesAgo := func(n int) time.Time { return now.Add(-time.Duration(n) * time.Minute) }
	var revisions []int64
	write := func(ago int) {
		t.Helper()
		d.write(t)
		for _, table := range []string{"log WHERE id", "counter WHERE revision"} {
			set := strings.Replace(table, " ", " SET written_at = ? ", 1)
			harness.Must(t, d.Exec(t.Context(), "UPDATE "+set+" = (SELECT max(id) FROM log)", minutesAgo(ago).UnixMilli()))
		}
		revisions = append(revisions, d.newest)
	}
	const years = 365 * 24 * 60
	write(20)
	f := d.follow(t, place, Options{})
	for _, generation := range [][]int{{9, 7, 17}, {5, -70 * years}, {3}} {
		for _, ago := range generation {
			write(ago)
		}
		f.renewed(t)
	}
	for _, want := range []struct{ ago, row int }{{20, 0}, {16, 0}, {9, 1}, {8, 1}, {7, 3}, {6, 3}, {5, 4}, {4, 4}, {3, 6}, {2, 6}} {
		b := opened(t, place)
		if len(b.Spans) != 4 {
			t.Fatalf("the place has %+v", b)
		}
		s, err := b.Fetch(t.Context(), 0, minutesAgo(want.ago), 0, t.TempDir())
		if err != nil || !maps.Equal(d.states[s.Revision], d.states[revisions[want.row]]) {
			t.Errorf("%d minutes ago: %+v, %v; want revision %d of %v", want.ago, s, err, revisions[want.row], revisions)
		}
	}
}
