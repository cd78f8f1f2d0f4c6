package sqlstore

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/sqube/sqube/dialect"
)

// tailTimeout is how long a read waits for the tail to catch up with other processes. Then it reads from the database.
const tailTimeout = time.Second

// cached returns the state that q reads and the log's position, or nil if q must be read from the database. Like Page, it returns
// ErrFuture and ErrCompacted.
//
// A read without a revision sees every write that any process acknowledged before it began: if other processes write too, it
// reads the newest revision from the database and waits until the cache has reached it, as kube-apiserver's consistent reads from
// its watch cache do (KEP-2340).
func (s *Store) cached(ctx context.Context, q Query) (*snapshot, dialect.Position, error) {
	if s.opts.CacheBytes == NoCache {
		return nil, dialect.Position{}, nil
	}
	at, err := s.current(ctx)
	if err != nil {
		return nil, at, err
	}
	if !s.awaitTail(ctx, at.Revision) {
		return nil, at, ctx.Err()
	}
	snap, revision, f := s.lookup(q)
	if f != nil && q.Exactly == nil && q.Revision == 0 {
		// The list that fills the cache is the one that q would read.
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, at, context.Cause(ctx)
		}
		snap, revision, _ = s.lookup(q)
	}
	if snap == nil {
		return nil, at, nil
	}
	at.Revision = max(at.Revision, revision)
	return snap, at, s.readable(at, q.Revision)
}

// lookup is cache.lookup for q. It starts the filling that this asks for.
func (s *Store) lookup(q Query) (snap *snapshot, at int64, f *filling) {
	snap, at, f, begins := s.cache.lookup(q.Resource, q.Revision)
	if begins {
		s.beginFill(q.Resource, f)
	}
	return snap, at, f
}

func (s *Store) beginFill(resource Resource, f *filling) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		s.fill(resource, f) // fails
		return
	}
	s.done.Go(func() { s.fill(resource, f) })
}

// fill reads a collection into the cache.
func (s *Store) fill(resource Resource, f *filling) {
	s.cache.fill(resource, f, func(add func(*Record) error) (int64, error) {
		q := Query{Resource: resource, Limit: PageRecords, Bytes: PageBytes}
		for {
			page, err := s.pageOfLog(s.ctx, q)
			if err != nil {
				return 0, err
			}
			q.Revision = cmp.Or(q.Revision, page.Revision)
			for _, r := range page.Records {
				q.After = r.Key
				if err := add(r); err != nil {
					return 0, err
				}
			}
			if !page.More {
				return q.Revision, nil
			}
		}
	})
}

// current returns the position of the log. If no other process writes, the hub has it, unless a failed commit may have taken
// effect.
func (s *Store) current(ctx context.Context) (dialect.Position, error) {
	if s.engine.Notifications() == nil && s.ambiguous.Load() == s.resolved.Load() {
		return dialect.Position{Revision: s.hub.at(), Compacted: s.compacted.Load()}, nil
	}
	ctx, cancel := s.bounded(ctx) // it may have to wait for an earlier read first
	defer cancel()
	return s.newest.read(ctx, func() (dialect.Position, error) { return s.Position(s.ctx) })
}

// awaitTail waits until the cache has the changes up to revision. It returns false after tailTimeout.
func (s *Store) awaitTail(ctx context.Context, revision int64) bool {
	if s.hub.before(revision) == nil {
		return true
	}
	if s.isForeign(revision) {
		wake(s.hub.behind)
	}
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	return s.Await(ctx, revision) == nil
}

// published waits until the hub has passed on the revision that a read of the log has seen. A commit is in the log a moment
// before that, and the next read of its object, if it comes from memory, must not return an older version. With other writers,
// such a read asks the log for the newest revision first.
func (s *Store) published(ctx context.Context, revision int64) {
	if s.engine.Notifications() == nil && s.opts.CacheBytes != NoCache {
		s.awaitTail(ctx, revision)
	}
}

// revisions shares reads of the log's position between callers: while one read is in progress, new callers wait for the next one,
// which begins after their call.
type revisions struct {
	mu      sync.Mutex
	reading bool
	next    *revisionRead
}

type revisionRead struct {
	done chan struct{}
	at   dialect.Position
	err  error
}

// read returns the result of a call to query that began after the call to read.
func (r *revisions) read(ctx context.Context, query func() (dialect.Position, error)) (dialect.Position, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &revisionRead{done: make(chan struct{})}
	}
	mine := r.next
	if !r.reading {
		r.reading = true
		go r.run(query)
	}
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.at, mine.err
	case <-ctx.Done():
		return dialect.Position{}, context.Cause(ctx)
	}
}

func (r *revisions) run(query func() (dialect.Position, error)) {
	for {
		r.mu.Lock()
		read := r.next
		r.next = nil
		r.reading = read != nil
		r.mu.Unlock()
		if read == nil {
			return
		}
		read.at, read.err = query()
		close(read.done)
	}
}
