package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// Moment finds the revision that a log had at a moment, from the times of its rows.
//
// Times can go back: once if a clock was corrected (see dialect.MaxAhead), and at any row in logs of earlier versions and servers
// whose clocks differed. What was written after a row with a later time was written later still, whatever its own time says. So
// the revision is the last one up to the moment before the first one after it. Times in the future tell nothing.
type Moment struct {
	Revision int64 // 0 if no row was written by then
	// Latest is the last revision with a time up to the moment. If it differs from Revision, times contradict each other.
	Latest int64
	// Passed is set if a row was written after the moment.
	Passed bool

	at, future, newest int64
}

// NewMoment returns a Moment without rows.
func NewMoment(at time.Time) *Moment {
	return &Moment{at: at.UnixMilli(), future: future().UnixMilli()}
}

// future is when the future begins that no right clock shows.
func future() time.Time { return time.Now().Add(dialect.MaxAhead) }

// IsFuture reports whether a time in a log is one that no right clock can have shown.
func IsFuture(t time.Time) bool { return t.After(future()) }

// Row takes a row of the log. Rows come in the order of their ids.
func (m *Moment) Row(id, writtenAt int64) {
	m.newest = writtenAt
	switch {
	case writtenAt <= m.at:
		m.Latest = id
		if !m.Passed {
			m.Revision = id
		}
	case writtenAt <= m.future:
		m.Passed = true
	}
}

// Doubt says why the revision may be another one, since a clock was wrong. It is "" if nothing indicates that.
func (m *Moment) Doubt() string {
	if m.Latest > m.Revision {
		return fmt.Sprintf("times contradict each other, since a clock was wrong: revision %d is the last one before all later times; others have earlier times again, the last one is %d", m.Revision, m.Latest)
	}
	if ahead := time.Until(time.UnixMilli(m.newest)).Truncate(time.Second); ahead > 0 {
		return fmt.Sprintf("the last row has a time that is %s ahead of this machine's clock, so what was written last may have been written earlier than it says", ahead)
	}
	return ""
}

// RevisionAt returns the revision of a log at a moment. It returns an error that wraps ErrForgotten if versions that old are no
// longer kept.
func RevisionAt(ctx context.Context, r dialect.Reader, at time.Time) (*Moment, error) {
	m := NewMoment(at)
	kept, err := Read(ctx, r)
	if err != nil {
		return m, err
	}
	before, after, err := history.Around(ctx, r, at.UnixMilli())
	if err != nil {
		return m, err
	}
	left := []history.Written{before, after}
	note := func(id, writtenAt int64) { // in order, with those that have left the log
		for len(left) > 0 && left[0].Revision < id {
			if left[0].Revision != 0 {
				m.Row(left[0].Revision, left[0].At)
			}
			left = left[1:]
		}
		m.Row(id, writtenAt)
	}
	var newest, newestAt, last int64
	const statement = "SELECT revision, counter.written_at, log.id, log.written_at FROM counter LEFT JOIN log ON log.id >= ? WHERE one = 1 ORDER BY log.id"
	err = r.Query(ctx, statement, []any{kept.From}, func(row dialect.Row) error {
		var id, writtenAt *int64
		err := row.Scan(&newest, &newestAt, &id, &writtenAt)
		if id != nil {
			last = *id
			note(*id, *writtenAt)
		}
		return err
	})
	if newest > last { // its row was removed, but the counter has its time
		note(newest, newestAt)
	}
	if err == nil && m.Revision < max(kept.From, 1) {
		err = fmt.Errorf("%w: the earliest moment is %s", ErrForgotten, Stamp(kept.Earliest))
	}
	return m, err
}

// Stamp formats a time in UTC and, if that differs, in this machine's time zone.
func Stamp(t time.Time) string {
	utc, local := t.UTC().Format(time.RFC3339), t.Local().Format(time.RFC3339)
	if utc == local {
		return utc
	}
	return utc + " (" + local + ")"
}
