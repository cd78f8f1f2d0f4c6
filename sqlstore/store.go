// Package sqlstore keeps the state of a cluster as an append-only log of rows in a SQL database, and sends every change to its
// watchers once and in order.
//
// A row is one version of one object. Its id is the object's resourceVersion. Ids rise in the order in which commits become
// visible, so a reader that has seen revision N has seen everything up to N. A row was current from its id until its replaced_by,
// so the state at revision R is the rows with
//
//	id <= R and (replaced_by is null or replaced_by > R)
//
// and the current state is the rows with replaced_by null.
//
//	Write ──► committer ──► engine.Commit ──► hub ──► cache ──► Get, List, Count
//	          (one group        │              ▲ └──► Subscription
//	           at a time)       ▼              │
//	                         the log ──► tail ─┘ rows of other processes
//	                            └──► what the cache does not hold: Get, List, Count, Replay
//
// server/README.md lists the words of all packages. These are of this one:
//
//	record        a row in memory
//	change        a row together with the row it replaced
//	topic         the subscriptions to one resource
//	subscription  receives the changes of a resource, or of an object, as they come
//	bare          without its value, which is left in the database
//	withheld      not stored in the clear: labels and fields of an encrypted value
//	incarnation   a Postgres server on its timeline; a promoted standby is another one
//
// The package is independent of Kubernetes' types: subpackage apistorage implements storage.Interface on it. dialect.Engine hides
// the differences between databases.
package sqlstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// DefaultRetention is the interval at which kube-apiserver compacts etcd.
const DefaultRetention = 5 * time.Minute

// DefaultTimeout is how long one database access may take.
const DefaultTimeout = 10 * time.Second

// DefaultCacheBytes leaves enough memory for everything else on a machine of 512 MB.
const DefaultCacheBytes = 128 << 20

// NoCache makes all reads go to the database.
const NoCache = -1

// Options are the settings of a Store. A zero value means the default.
type Options struct {
	// Retention is how long replaced and deleted versions can still be read. Default DefaultRetention.
	Retention time.Duration
	// RetentionRows limits how many of them are kept, even if that shortens Retention. Default 0, for no limit.
	RetentionRows int64
	// History is how long versions can be read after they have left the log, by lists and gets at their revisions. Default 0: not at all.
	History time.Duration
	// HistoryBytes limits their size, even if that shortens History. Default 0, for no limit.
	HistoryBytes int64
	// HistoryThin says which versions are not worth keeping there.
	HistoryThin history.Rules
	// CompactInterval is how often older versions are removed. Default a tenth of Retention, at most 30 seconds, and rarely if there are
	// few.
	CompactInterval time.Duration
	compactLeast    int64 // see compactLeast
	// Archived is set if versions are archived before they are removed. It returns the revision up to which the archive is
	// complete. If the error wraps ErrArchivedElsewhere, another process removes versions. After any other error, versions that
	// are not archived stay, except those beyond RetentionRows.
	Archived func() (revision int64, err error)
	// Timeout limits one database access, including the wait for a connection. Default DefaultTimeout.
	Timeout time.Duration
	// PollInterval is how often the log is read for rows of other processes if no notification comes. Default 1 second; unused on
	// SQLite.
	PollInterval time.Duration
	// ExpiryInterval is how often the store looks for expired objects at most, and if other processes write, at least. Default 5 seconds.
	ExpiryInterval time.Duration
	// CacheBytes limits the memory of live rows that can be read without the database. Default DefaultCacheBytes; NoCache for
	// none.
	CacheBytes int64
	// FollowerMemory limits the bytes that all followers together hold. Default DefaultFollowerMemory.
	FollowerMemory int64
	// HeartbeatInterval is for how long heartbeats may wait to be committed, after they were acknowledged. Default 0: they are committed
	// before, like other writes. Unused if other processes may write to the database (Postgres).
	HeartbeatInterval time.Duration
	// HeartbeatResource has the objects that heartbeats are for.
	HeartbeatResource Resource
	// OnBatch is called with the duration of each compaction batch that removed rows. Optional.
	OnBatch func(took time.Duration)
	// OnRequest is called after each access to the objects of a resource in the database: get, list, listWithCount, create, update
	// or delete. A write waits for its group first; a conflict is no error. Optional.
	OnRequest func(operation string, resource Resource, began time.Time, err error)
	// OnChange is called for each change that the database has got, in order, once the store sees it. Optional.
	OnChange func(Resource)
	// OnGroup is called with the number of writes of each group commit, including conflicts. Optional.
	OnGroup func(writes int)
	// Virtual is for a store in a bubble of testing/synctest: it does not look for what happens outside, to its files and the clock.
	Virtual bool
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log receives failures of background work, which has no caller to return them to.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	def(&o.Retention, DefaultRetention)
	if o.CompactInterval <= 0 {
		o.compactLeast = compactLeast
	}
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
	if o.OnBatch == nil {
		o.OnBatch = func(time.Duration) {}
	}
	if o.OnRequest == nil {
		o.OnRequest = func(string, Resource, time.Time, error) {}
	}
	if o.OnChange == nil {
		o.OnChange = func(Resource) {}
	}
	if o.OnGroup == nil {
		o.OnGroup = func(int) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Store is an open log. Its methods are safe for concurrent use.
type Store struct {
	engine dialect.Engine
	opts   Options
	hub    *hub
	cache  *cache
	memory *memory
	size   size
	bounds bounds
	newest revisions
	// ambiguous counts the commits that may or may not have taken effect; resolved counts those of them that the tail has read
	// past.
	ambiguous, resolved atomic.Int64
	// compacted is the newest revision up to which this process has begun to remove versions.
	compacted dialect.Newest
	// outlived is the newest revision that is older than the retention, as far as this process knows.
	outlived dialect.Newest
	grown    atomic.Int64 // bytes of history since it was last measured

	queue chan *pending
	held  held
	holds bool // whether heartbeats are held
	// superseded are the heartbeats that are not in the log.
	superseded superseded
	// committing is set while the committer commits a group and publishes it. heard is the newest revision notified of; see
	// isForeign.
	committing atomic.Bool
	heard      dialect.Newest

	alone      bool          // no other process writes
	expiring   chan struct{} // see untilExpiry
	nextExpiry atomic.Int64  // in Unix milliseconds
	attempted  chan struct{} // has a value after a commit was tried

	wrote    atomic.Pointer[time.Time] // when the last group was committed
	failing  bool                      // the last commit failed; only for the committer
	full     atomic.Bool               // since there was no room on the disk
	moved    atomic.Bool               // see inPlace
	unerased atomic.Bool               // whether something that was purged may have to be erased; see erase
	failures *failures
	tailLag  tailLag
	clock    clock

	stop context.CancelFunc
	ctx  context.Context
	// closing is read-locked while a write is being queued.
	closing sync.RWMutex
	closed  bool
	done    sync.WaitGroup
}

// ErrClosed is returned for writes after Close.
var ErrClosed = errors.New("the store is closed")

// Open starts a Store on engine, which Store.Close closes. It fails if the database can't be read.
func Open(ctx context.Context, engine dialect.Engine, opts Options) (*Store, error) {
	s := &Store{
		engine: engine, opts: opts.withDefaults(), queue: make(chan *pending), alone: engine.Notifications() == nil,
		expiring: make(chan struct{}, 1), attempted: make(chan struct{}, 1),
	}
	s.held.init()
	s.failures = newFailures(s.opts.Log)
	at, err := s.Position(ctx)
	if err == nil && s.opts.HeartbeatInterval > 0 {
		s.holds, err = engine.MayHold(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	if at.Revision > dialect.MaxExact {
		s.opts.Log.Warn("resourceVersions are above 2^53: clients that take them for floating-point numbers, such as dashboards in JavaScript, can't tell one from the next; in an empty database they begin at 1", "revision", at.Revision)
	}
	s.compacted.Store(at.Compacted)
	s.unerased.Store(true) // the process before may have been killed
	if engine.Held() {
		s.superseded.raise(at.Revision, at.Revision)
	}
	s.cache = newCache(s.opts.CacheBytes, at.Revision)
	s.cache.empty = at.Revision <= EmptyRevision
	s.memory = newMemory(s.opts.FollowerMemory)
	s.hub = newHub(at.Revision, s.cache, s.opts.OnChange, s.memory)
	s.ctx, s.stop = context.WithCancel(context.Background())
	background := []func(context.Context){s.tail, s.expire, s.compact}
	if !s.opts.Virtual && engine.HasFiles() {
		background = append(background, func(ctx context.Context) {
			for s.pause(ctx, placeInterval) {
				s.inPlace(s.engine.InPlace(ctx))
			}
		})
	}
	for _, work := range background {
		s.done.Go(func() { work(s.ctx) })
	}
	s.done.Go(s.commit)
	return s, nil
}

// EmptyRevision is that of a log that has just been created.
const EmptyRevision = 1

// Close ends background work, commits what is queued, ends all subscriptions and closes the database.
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

// bounded returns a context for one database access.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.opts.Timeout)
}

// pause waits for d, or returns false if the store closes first.
func (s *Store) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
