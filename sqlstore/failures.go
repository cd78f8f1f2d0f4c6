package sqlstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sqube/sqube/dialect"
)

// failures logs database errors. They appear nowhere else: clients must not see statements, or the names of the database, its
// host and its user. If many accesses fail, only some are logged.
type failures struct {
	log         *slog.Logger
	seen        atomic.Uint64
	damaged     sync.Once
	unavailable rate.Sometimes
	refusals    rate.Sometimes

	// silent is when the first unanswered access began, or nil if the last one was answered.
	silent atomic.Pointer[time.Time]
}

// The pauses between log lines of a kind.
const (
	unavailableEvery = 10 * time.Second
	refusalEvery     = time.Second
)

func newFailures(log *slog.Logger) *failures {
	return &failures{log: log, unavailable: rate.Sometimes{Interval: unavailableEvery}, refusals: rate.Sometimes{Interval: refusalEvery}}
}

// Failures returns how many database accesses have failed, not counting callers' mistakes. It is incremented before the error is
// returned.
func (s *Store) Failures() uint64 { return s.failures.seen.Load() }

// contact records whether the database answered an access. A database that rejects a statement, is damaged or has a full disk
// does answer.
func (f *failures) contact(began time.Time, err error) {
	switch {
	case errors.Is(err, dialect.ErrUnavailable) && !errors.Is(err, dialect.ErrFull), errors.Is(err, context.DeadlineExceeded):
		f.silent.CompareAndSwap(nil, &began)
	case f.silent.Load() != nil:
		f.silent.Store(nil)
	}
}

// silence returns for how long the database has not answered, 0 while it does.
func (f *failures) silence() time.Duration {
	if since := f.silent.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}

// read records the result of a read, nil or an error that is not the caller's mistake.
func (f *failures) read(err error) {
	var failure *dialect.Error
	switch {
	case errors.Is(err, dialect.ErrCorrupt):
		f.seen.Add(1)
		f.damaged.Do(func() {
			f.log.Error("the database is damaged: stop all servers before it gets worse, run sqube check, and restore a backup", "error", err)
		})
	case errors.Is(err, dialect.ErrMoved):
		f.seen.Add(1) // see Store.inPlace
	case errors.Is(err, dialect.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		f.seen.Add(1)
		f.unavailable.Do(func() { f.log.Error("reading the database failed; clients will retry", "error", err) })
	case errors.As(err, &failure):
		f.seen.Add(1)
		f.refused(err)
	}
}

// refused records the error of a rejected statement.
func (f *failures) refused(err error) {
	f.refusals.Do(func() { f.log.Error("the database rejected a statement", "error", err) })
}
