package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/sqube/sqube/dialect"
)

// ErrMoved is returned for writes while a file of the database is not where it was; see dialect.ErrMoved.
var ErrMoved = dialect.ErrMoved

// placeInterval is how often to look whether the files of the database are in their place, if nothing is written.
const placeInterval = time.Second

// inPlace records what Engine.InPlace returned, and logs it if that is new.
func (s *Store) inPlace(err error) {
	switch {
	case err != nil && s.moved.CompareAndSwap(false, true):
		s.opts.Log.Error("nothing can be written: it would be lost with the next restart; clients will retry", "error", err)
	case err == nil && s.moved.CompareAndSwap(true, false):
		s.opts.Log.Info("the files of the database are back in their place")
	}
}

// Ready returns an error if the database does not answer, or ErrMoved.
func (s *Store) Ready(ctx context.Context) error {
	_, err := s.positionOfLog(ctx)
	return errors.Join(err, s.engine.InPlace(ctx))
}
