package sqlstore

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sqube/sqube/dialect"
)

// ExpiryAuthor is the user in the log for deletions of expired objects.
const ExpiryAuthor = "system:sqube:expiry"

// never is later than any expiry.
const never = math.MaxInt64

// clockInterval is how often to look whether the clock has jumped past the next expiry.
const clockInterval = time.Minute

// expire deletes objects when they expire, by ordinary deletions that watchers see. If several processes share the log, all of
// them try; one succeeds and the others get a conflict, which they ignore.
func (s *Store) expire(ctx context.Context) {
	ctx = WithAuthor(ctx, Author{User: ExpiryAuthor})
	for s.pause(ctx, s.opts.ExpiryInterval) && s.untilExpiry(ctx) {
		if err := s.expireDue(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrMoved) {
			s.opts.Log.Error("deleting expired objects failed; retrying", "error", err)
		}
	}
}

// untilExpiry waits until an object may have expired, or returns false if the store closes first.
func (s *Store) untilExpiry(ctx context.Context) bool {
	for s.alone {
		left := time.Duration(math.MaxInt64)
		if next := s.nextExpiry.Load(); next != never {
			left = time.UnixMilli(next).Sub(s.opts.Now())
		}
		if left <= 0 {
			return true
		}
		if !s.opts.Virtual {
			left = min(left, clockInterval)
		}
		select {
		case <-time.After(left):
		case <-s.expiring:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// noteExpiry wakes untilExpiry if an object that was written expires before all others.
func (s *Store) noteExpiry(at int64) {
	if at > 0 && at < s.nextExpiry.Load() {
		wake(s.expiring)
	}
}

func (s *Store) expireDue(ctx context.Context) error {
	s.nextExpiry.Store(never) // until it is known, every write is noted
	return errors.Join(s.deleteDue(ctx), s.findNextExpiry(ctx))
}

// deleteDue deletes what has expired.
func (s *Store) deleteDue(ctx context.Context) error {
	for {
		due, err := s.due(ctx)
		if err != nil || len(due) == 0 {
			return err
		}
		results := make(chan error, len(due))
		for _, w := range due {
			go func() {
				_, err := s.Write(ctx, w)
				if errors.Is(err, ErrConflict) {
					err = nil
				}
				results <- err
			}()
		}
		for range due {
			err = errors.Join(err, <-results)
		}
		if err != nil {
			return err
		}
	}
}

// findNextExpiry finds when the next object expires.
func (s *Store) findNextExpiry(ctx context.Context) error {
	if !s.alone {
		return nil
	}
	b := s.statement().setApart().add("SELECT expires_at FROM log WHERE expires_at IS NOT NULL AND replaced_by IS NULL ORDER BY expires_at LIMIT 1")
	var next int64 = never
	err := s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&next) })
	if err != nil {
		next = 0 // look again soon
	}
	s.nextExpiry.Store(next)
	return err
}

// due returns the deletions of objects that have expired, as many as one group may have.
func (s *Store) due(ctx context.Context) ([]*Write, error) {
	b := s.statement().setApart().add("SELECT id, api_group, resource, key, namespace, name, uid, labels, fields, value FROM log WHERE expires_at IS NOT NULL AND replaced_by IS NULL AND expires_at <= ")
	b.add(b.arg(s.opts.Now().UnixMilli()) + " ORDER BY expires_at").limit(maxGroupWrites)
	var due []*Write
	bytes := 0
	err := s.run(ctx, b, func(row dialect.Row) error {
		r := &Record{}
		w := &Write{Operation: dialect.Delete, Previous: r}
		if err := row.Scan(&r.Revision, &w.Resource.Group, &w.Resource.Name, &w.Key, &w.Namespace, &w.Name, &w.UID, &r.Labels, &r.Fields, &r.Value); err != nil {
			return err
		}
		r.Key = w.Key
		due = append(due, w)
		if bytes += len(r.Value); bytes >= maxGroupBytes {
			return errEnough
		}
		return nil
	})
	return due, err
}
