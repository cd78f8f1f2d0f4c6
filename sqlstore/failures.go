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

// failures logs the errors of the database. They appear nowhere else: clients must not see statements, nor the names of the
// database, its host and its user. When many accesses fail, only some are logged.
type failures struct {
	log         *slog.Logger
	seen        atomic.Uint64
	damaged     sync.Once
	unavailable rate.Sometimes
	refusals    rate.Sometimes

	// silent is when the first unanswered access began, nil if the last one was answered.
	silent atomic.Pointer[time.Time]
}

// The pauses between two log lines of a kind.
const (
	unavailableEvery = 10 * time.Second
	refusalEvery     = time.Second
)

func newFailures(log *slog.Logger) *failures {
	return &failures{log: log, unavailable: rate.Sometimes{Interval: unavailableEvery}, refusals: rate.Sometimes{Interval: refusalEvery}}
}

// Failures returns how many database accesses have failed, except for mistakes of the caller. It rises before the error is
// returned.
func (s *Store) Failures() uint64 { return s.failures.seen.Load() }

// contact notes whether the database answered an access. One that refuses, is damaged or has a full disk does answer.
func (f *failures) contact(began time.Time, err error) {
	switch {
	case errors.Is(err, dialect.ErrUnavailable) && !errors.Is(err, dialect.ErrFull), errors.Is(err, context.DeadlineExceeded):
		f.silent.CompareAndSwap(nil, &began)
	case f.silent.Load() != nil:
		f.silent.Store(nil)
	}
}

// silence returns how long the database has not answered, 0 while it does.
func (f *failures) silence() time.Duration {
	if since := f.silent.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}

// read takes the result of a read that did not fail through the caller, also nil.
func (f *failures) read(err error) {
	var failure *dialect.Error
	switch {
	case errors.Is(err, dialect.ErrCorrupt):
		f.seen.Add(1)
		f.damaged.Do(func() {
			f.log.Error("the database is damaged: stop all servers before it gets worse, run sqube check, and restore a backup", "error", err)
		})
	case errors.Is(err, dialect.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		f.seen.Add(1)
		f.unavailable.Do(func() { f.log.Error("reading the database fails; clients will retry", "error", err) })
	case errors.As(err, &failure):
		f.seen.Add(1)
		f.refused(err)
	}
}

// refused takes the error of a database that refused a statement.
func (f *failures) refused(err error) {
	f.refusals.Do(func() { f.log.Error("the database refused a request", "error", err) })
}
