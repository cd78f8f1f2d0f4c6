// Package sqlstore keeps the state of a cluster as an append-only log of rows
// in a SQL database, and tells watchers of each row once, in order.
//
// A row is one version of one object. Its id is the object's resourceVersion;
// ids rise in the order in which commits become visible, so a reader that has
// seen revision N has seen everything up to N. A row was current from its id
// until its replaced_by, so the state at any revision R is the rows with
//
//	id <= R and (replaced_by is null or replaced_by > R)
//
// and the present state is the rows with replaced_by null.
//
//	Write ──► committer ──► engine.Commit ──► hub ──► cache ──► Get, List, Count
//	          (one group        │              ▲ └──► Subscription
//	           at a time)       ▼              │
//	                         the log ──► tail ─┘ rows that this process did not write itself
//	                            └──► what the cache does not hold: Get, List, Count, Replay
//
// The package knows nothing of Kubernetes' types; subpackage apistorage puts
// storage.Interface on top of it. What engines do differently is behind
// dialect.Engine.
package sqlstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqube/sqube/dialect"
)

// DefaultRetention is that of kube-apiserver, which compacts etcd as often.
const DefaultRetention = 5 * time.Minute

// DefaultTimeout is how long one access to the database may take.
const DefaultTimeout = 10 * time.Second

// DefaultCacheBytes leaves a machine of 512 MB room for everything else.
const DefaultCacheBytes = 128 << 20

// NoCache has all reads ask the database.
const NoCache = -1

// Options are the settings of a Store. The zero value of each means its
// default.
type Options struct {
	// Retention is for how long replaced and deleted versions can still be
	// read. Default DefaultRetention.
	Retention time.Duration
	// RetentionRows is how many of them are kept at the most, also if that makes
	// it less time. Default 0, for no limit.
	RetentionRows int64
	// CompactInterval is how often older ones are forgotten. Default a tenth of Retention, but 30 seconds at the most.
	CompactInterval time.Duration
	// Archived, where versions are archived before they are removed, returns the revision up to which the archive holds all
	// of them. With an error that wraps ErrArchivedElsewhere, removing them is left to another process. With any other
	// error the archive fails: what it does not hold stays, but for what is more than RetentionRows. Optional.
	Archived func() (revision int64, err error)
	// Timeout bounds one access to the database, with the wait for its turn.
	// Default DefaultTimeout.
	Timeout time.Duration
	// PollInterval is how often the log is asked for rows of other processes
	// when no notification comes. Default 1 second; unused on SQLite.
	PollInterval time.Duration
	// ExpiryInterval is how often expired objects are looked for. Default 5
	// seconds.
	ExpiryInterval time.Duration
	// CacheBytes is how much memory the live rows may take that are kept to be
	// read without the database. Default DefaultCacheBytes; NoCache for none.
	CacheBytes int64
	// FollowerMemory is how many bytes all followers may keep in use. Default
	// DefaultFollowerMemory.
	FollowerMemory int64
	// OnBatch is told how long each batch of compaction took, in which rows were
	// removed. Optional.
	OnBatch func(took time.Duration)
	// OnWrite is told how long each write waited for the answer of the
	// database, conflicts included. Optional.
	OnWrite func(took time.Duration)
	// OnGroup is told how many writes each transaction held, conflicts included. Optional.
	OnGroup func(writes int)
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log takes what no caller can be told: failures of background work.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	def(&o.Retention, DefaultRetention)
	def(&o.CompactInterval, max(min(o.Retention/10, 30*time.Second), 10*time.Millisecond))
	def(&o.Timeout, DefaultTimeout)
	def(&o.PollInterval, time.Second)
	def(&o.ExpiryInterval, 5*time.Second)
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.FollowerMemory <= 0 {
		o.FollowerMemory = DefaultFollowerMemory
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	for _, observer := range []*func(time.Duration){&o.OnBatch, &o.OnWrite} {
		if *observer == nil {
			*observer = func(time.Duration) {}
		}
	}
	if o.OnGroup == nil {
		o.OnGroup = func(int) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Store is an open log. All its methods may be called concurrently.
type Store struct {
	engine dialect.Engine
	opts   Options
	hub    *hub
	cache  *cache
	memory *memory
	size   size
	newest revisions
	// ambiguous counts the commits of which it is not known whether they took
	// effect, resolved how many of them the tail has looked behind.
	ambiguous, resolved atomic.Int64
	// compacted is the newest revision up to which this process has begun to forget versions.
	compacted atomic.Int64

	queue chan *pending
	// committing is set while the committer commits and hands out, heard is the
	// newest revision that a notification told of; see isForeign.
	committing atomic.Bool
	heard      atomic.Int64

	failing  bool // the last commit failed; the committer's own
	failures *failures
	tailLag  tailLag

	stop context.CancelFunc
	ctx  context.Context
	// closing is held shared by those who are about to queue a write.
	closing sync.RWMutex
	closed  bool
	done    sync.WaitGroup
}

// ErrClosed is returned for writes to a Store after its Close.
var ErrClosed = errors.New("the store is closed")

// Open starts a Store on engine, which it closes with itself. It fails when
// the database can't be read.
func Open(ctx context.Context, engine dialect.Engine, opts Options) (*Store, error) {
	s := &Store{engine: engine, opts: opts.withDefaults(), queue: make(chan *pending)}
	s.failures = newFailures(s.opts.Log)
	at, err := s.Position(ctx)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	s.compacted.Store(at.Compacted)
	s.cache = newCache(s.opts.CacheBytes, at.Revision)
	s.memory = newMemory(s.opts.FollowerMemory)
	s.hub = newHub(at.Revision, s.cache, s.memory)
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, work := range []func(context.Context){s.tail, s.expire, s.compact} {
		s.done.Add(1)
		go func() {
			defer s.done.Done()
			work(s.ctx)
		}()
	}
	s.done.Add(1)
	go func() {
		defer s.done.Done()
		s.commit()
	}()
	return s, nil
}

// Close ends background work, commits what was queued, ends all subscriptions
// and closes the database.
func (s *Store) Close() error {
	s.closing.Lock()
	if s.closed {
		s.closing.Unlock()
		return nil
	}
	s.closed = true
	close(s.queue)
	s.closing.Unlock()
	s.stop()
	s.done.Wait()
	s.hub.close()
	return s.engine.Close()
}

// bounded limits one access to the database in time.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.opts.Timeout)
}

// pause waits for d, or returns false when the store closes before.
func (s *Store) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
