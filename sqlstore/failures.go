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

// failures logs what the database says where it fails. It is the only place that has all of it: clients must not see the
// name of the database, nor those of its host and its user, nor statements. While much fails, a part of it is logged.
type failures struct {
	log         *slog.Logger
	seen        atomic.Uint64
	damaged     sync.Once
	unavailable rate.Sometimes
	refusals    rate.Sometimes

	// silent is when the first access began that the database did not answer, nil after one that it did.
	silent atomic.Pointer[time.Time]
}

// The pauses between two log lines of one kind.
const (
	unavailableEvery = 10 * time.Second
	refusalEvery     = time.Second
)

func newFailures(log *slog.Logger) *failures {
	return &failures{log: log, unavailable: rate.Sometimes{Interval: unavailableEvery}, refusals: rate.Sometimes{Interval: refusalEvery}}
}

// Failures counts the accesses to the database that have failed, for no fault of those who asked for them. It rises before
// the error is returned.
func (s *Store) Failures() uint64 { return s.failures.seen.Load() }

// contact notes whether the database has answered an access that began then. A database that refuses, is damaged or has a
// full disk answers.
func (f *failures) contact(began time.Time, err error) {
	switch {
	case errors.Is(err, dialect.ErrUnavailable) && !errors.Is(err, dialect.ErrFull), errors.Is(err, context.DeadlineExceeded):
		f.silent.CompareAndSwap(nil, &began)
	case f.silent.Load() != nil:
		f.silent.Store(nil)
	}
}

// silence is for how long the database has not answered, 0 while it does.
func (f *failures) silence() time.Duration {
	if since := f.silent.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}

// read takes the error of a read, nil included, of which the caller is not to blame.
func (f *failures) read(err error) {
	var failure *dialect.Error
	switch {
	case errors.Is(err, dialect.ErrCorrupt):
		f.seen.Add(1)
		f.damaged.Do(func() {
			f.log.Error("the database is damaged, which gets worse: stop all servers, see what sqube check says, and restore a backup", "error", err)
		})
	case errors.Is(err, dialect.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		f.seen.Add(1)
		f.unavailable.Do(func() { f.log.Error("reading the database fails; clients are told to try again", "error", err) })
	case errors.As(err, &failure):
		f.seen.Add(1)
		f.refused(err)
	}
}

// refused takes the error of a database that does not take what it was given.
func (f *failures) refused(err error) {
	f.refusals.Do(func() { f.log.Error("the database refused a request", "error", err) })
}
