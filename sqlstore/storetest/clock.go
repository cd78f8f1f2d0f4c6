package storetest

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// writtenAt returns the times of all rows.
func writtenAt(t *testing.T, engine dialect.Engine) (times []int64) {
	t.Helper()
	err := engine.Query(t.Context(), "SELECT written_at FROM log ORDER BY id", nil, func(row dialect.Row) error {
		times = append(times, 0)
		return row.Scan(&times[len(times)-1])
	})
	harness.Must(t, err)
	return times
}

// testClock steps the clock of a server, also beside another one whose clock differs. Times in the log never go back, except from a
// future that a clock showed by mistake.
func testClock(t *testing.T, open Opener) {
	engine, lines := OpenEngine(t, open(t)), &Lines{}
	start := time.Now().Truncate(time.Millisecond)
	var clock atomic.Pointer[time.Time]
	clock.Store(&start)
	var about atomic.Pointer[string] // holds back the look at the log's time between writes
	looks := "SELECT written_at FROM counter"
	about.Store(&looks)
	s := Start(t, silent(engine, &about), sqlstore.Options{
		Now: func() time.Time { return *clock.Load() }, Log: slog.New(slog.NewTextHandler(lines, nil)), CompactInterval: 10 * time.Millisecond,
	})
	elsewhere := func(w *sqlstore.Write, clock time.Time) {
		t.Helper()
		if _, err := engine.Commit(t.Context(), []dialect.Write{w.LogRow(0, sqlstore.Author{}, clock).Write}); err != nil {
			t.Fatal(err)
		}
	}
	at := func(d time.Duration) time.Time { return start.Add(d) }
	future := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	var earliest, latest []int64
	for i, step := range []struct {
		clock, row time.Time
		elsewhere  bool // another server writes it
		unseen     bool // another server wrote the row before
	}{
		{clock: at(0), row: at(0)},
		{clock: at(time.Hour), row: at(time.Hour)},
		{clock: at(50 * time.Minute), row: at(time.Hour)},
		{clock: time.Date(1976, 1, 1, 0, 0, 0, 0, time.UTC), row: at(time.Hour)},
		{clock: at(2 * time.Hour), row: at(2 * time.Hour)},
		{clock: at(130 * time.Minute), row: at(130 * time.Minute), elsewhere: true},
		{clock: at(2 * time.Hour), row: at(130 * time.Minute), unseen: true},
		{clock: at(3 * time.Hour), row: at(3 * time.Hour)},
		{clock: at(170 * time.Minute), row: at(3 * time.Hour), elsewhere: true},
		{clock: future, row: future},
		{clock: future.Add(-time.Minute), row: future},
		{clock: at(4 * time.Hour), row: at(4 * time.Hour)},
		{clock: at(5 * time.Hour), row: at(5 * time.Hour)},
	} {
		w := put(fmt.Sprint("object-", i), "{}", nil)
		const passes = 5 * time.Millisecond
		time.Sleep(passes)
		if step.elsewhere {
			elsewhere(w, step.clock)
		} else {
			clock.Store(&step.clock)
			must(t, s, w)
		}
		least, most := step.row, step.row
		if step.row.After(step.clock) { // the time of the row before, and what has passed since
			most = step.row.Add(time.Since(start))
			if !step.elsewhere && !step.unseen {
				least = step.row.Add(passes)
			}
		}
		if behind := s.Stats().ClockBehind; !step.elsewhere && (behind < least.Sub(step.clock) || behind > most.Sub(step.clock)) {
			t.Errorf("at %s its clock counts as %s behind, not %s", step.clock, behind, least.Sub(step.clock))
		}
		earliest, latest = append(earliest, least.UnixMilli()), append(latest, most.UnixMilli())
	}
	for i, at := range writtenAt(t, engine) {
		if at < earliest[i] || at > latest[i] {
			t.Errorf("row %d has time %d, not one from %d to %d", i, at, earliest[i], latest[i])
		}
	}
	for _, line := range []string{"clock is behind the time of the log", "the times in the log go back"} {
		if n := strings.Count(lines.String(), line); n != 1 {
			t.Errorf("%d lines say that %s:\n%s", n, line, lines)
		}
	}
	elsewhere(put("last", "{}", nil), at(310*time.Minute))
	about.Store(nil)
	Eventually(t, "the difference to what another server wrote is seen", func() bool { return s.Stats().ClockBehind == 10*time.Minute })
}

// testClocksOfServers writes from several servers at once whose clocks differ.
func testClocksOfServers(t *testing.T, open Opener) {
	opener := open(t)
	engines := []dialect.Engine{OpenEngine(t, opener)}
	if engines[0].Notifications() == nil {
		t.Skip("it has one server") // by its lock
	}
	engines = append(engines, OpenEngine(t, opener))
	start := time.Now().UnixMilli()
	var done sync.WaitGroup
	for i, engine := range engines {
		done.Go(func() {
			for n := range 100 {
				at := time.UnixMilli(start + int64(n)).Add(time.Duration(i) * 10 * time.Minute)
				w := put(fmt.Sprintf("%d-%d", i, n), "{}", nil).LogRow(0, sqlstore.Author{}, at).Write
				if _, err := engine.Commit(t.Context(), []dialect.Write{w}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	if times := writtenAt(t, engines[0]); len(times) != 200 || !slices.IsSorted(times) {
		t.Errorf("the rows have the times %v", times)
	}
	for _, engine := range engines {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}
}
