package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
)

// cluster is an entry of the registry. What a cluster needs only while it is awake is in running.
//
//	asleep ──enter──► waking ──► awake ──nobody asks──► stopping ──► asleep
type cluster struct {
	fleet *Fleet
	name  types.NamespacedName
	uid   types.UID
	id    string // of the database
	alarm alarm  // when the reconciler has to look at it

	version int64 // the newest resourceVersion of its object that is known; f.mu protects it

	mu       sync.Mutex
	made     bool        // it has its database
	running  *running    // nil while it sleeps
	gone     error       // why it does not wake up any more; nil if it does
	member   *membership // nil if it is of no pool
	news     *news       // what is not in its status yet; nil if nothing is
	writing  int         // writes of its status that have taken news
	parked   *parked     // nil if no watch may wait for it
	recorded bool        // its database is among the deleted ones
	keys     keyring     // whom the guard recognizes
	limits   *limits     // nil for none
	traffic  traffic
}

// running is a cluster that is not asleep.
type running struct {
	cluster *cluster
	ready   chan struct{} // closed when it is awake, or failed is set
	ended   chan struct{} // closed when everything has stopped
	stop    context.CancelFunc
	wanted  context.Context // ends if everybody who waits has gone before its turn
	abandon context.CancelCauseFunc
	alarm   alarm         // when to look whether it is idle
	later   chan struct{} // closed when the server may begin with what no request waits for
	first   chan struct{} // closed when the first request has been answered

	// These are set before ready is closed.
	failed error
	server *server.Server
	store  *sqlstore.Store
	after  time.Duration // of idleness until it falls asleep; 0 for never
	spec   v1alpha1.ClusterSpec
	began  time.Time
	took   time.Duration
	writes atomic.Int64                    // that the store has seen, except heartbeats
	bounds atomic.Pointer[sqlstore.Bounds] // of the store; set again when the spec changes

	mu       sync.Mutex
	waiting  int                // for it to be awake
	stopping bool               // no more requests may enter
	parks    bool               // watches may wait until it is awake again
	asked    bool               // somebody has requested something
	requests int                // that run, except watches
	watches  int                // that run
	last     time.Time          // when a request came or ended
	noted    time.Time          // the last that the status has, or will have
	written  int64              // changes, at the last look
	revision int64              // at the last look
	napped   time.Time          // when it began to fall asleep
	greeted  bool               // a request has been answered
	settling bool               // the server has not begun with what no request waits for
	open     map[mark]time.Time // since when some of the watches have been open
	quiet    chan struct{}      // closed when stopping and nothing runs
}

var (
	// errGone means that a cluster is being deleted.
	errGone = errors.New("the cluster is being deleted")
	// errStopping means that the host is about to stop.
	errStopping = errors.New("the server is stopping: try again")
	// errReplaced means that a cluster gets another database.
	errReplaced = errors.New("the cluster is being imported")
	// errAbandoned means that nobody waited any more for a cluster that was about to wake up.
	errAbandoned = errors.New("nobody waits for the cluster")
)

// enter wakes the cluster, unless it is awake, and counts a request until leave is called.
func (c *cluster) enter(ctx context.Context, watch bool) (s *server.Server, leave func(), err error) {
	for {
		r, err := c.wake(ctx)
		if errors.Is(err, errAbandoned) && ctx.Err() == nil {
			continue // by others
		}
		if err != nil {
			return nil, nil, err
		}
		if leave, ok := r.enter(watch); ok {
			return r.server, leave, nil
		}
		select { // it is falling asleep
		case <-r.ended:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// awake reports whether the cluster is awake, or nearly.
func (c *cluster) awake() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running != nil
}

// wake returns when the cluster is awake.
func (c *cluster) wake(ctx context.Context) (*running, error) {
	c.mu.Lock()
	if gone := c.gone; gone != nil {
		c.mu.Unlock()
		return nil, gone
	}
	r := c.running
	if r == nil && c.fleet.stops() {
		c.mu.Unlock()
		return nil, errStopping
	}
	if r == nil {
		r = &running{cluster: c, ready: make(chan struct{}), ended: make(chan struct{}), quiet: make(chan struct{}),
			later: make(chan struct{}), first: make(chan struct{})}
		var running context.Context
		running, r.stop = context.WithCancel(context.Background())
		r.wanted, r.abandon = context.WithCancelCause(running)
		c.running = r
		go c.run(running, r)
	}
	r.wait(1)
	c.mu.Unlock()
	defer r.wait(-1)
	select {
	case <-r.ready:
		if r.failed != nil {
			<-r.ended // the next one may try again
		}
		return r, r.failed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// wait counts who waits. If nobody does any more, the cluster does not get a turn to wake up.
func (r *running) wait(change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting += change; r.waiting == 0 {
		r.abandon(errAbandoned)
	}
}

// run runs the cluster's server until ctx ends.
func (c *cluster) run(ctx context.Context, r *running) {
	defer func() {
		c.fleet.alarms.set(&r.alarm, time.Time{}, r)
		c.mu.Lock()
		c.running = nil
		c.mu.Unlock()
		r.stop()
		close(r.ended)
	}()
	running, err := c.start(ctx, r)
	if err != nil {
		r.failed = err
		close(r.ready)
		c.couldNotWake(err)
		return
	}
	now := time.Now()
	r.mu.Lock()
	r.last, r.noted = now, now
	r.mu.Unlock()
	close(r.ready)
	c.woke(r)
	r.ring(now)
	if err := <-running; err != nil {
		logFailure("a cluster ended with an error", c.name, err)
		c.tell(func(n *news) {
			n.trouble = fmt.Sprintf("The cluster ended by an error, and wakes up again at the next request: %v.", err)
		})
	}
	c.slept(r)
}

// start wakes the cluster when it is its turn. What it returns gets a value when everything has stopped.
func (c *cluster) start(ctx context.Context, r *running) (ended <-chan error, err error) {
	if c.fleet.boot != nil { // in tests
		return c.fleet.boot(ctx, r)
	}
	object, err := c.fleet.made(r.wanted, c.name)
	if err != nil {
		return nil, err
	}
	release, err := c.fleet.turns.take(r.wanted, c.name.Namespace)
	if err != nil {
		return nil, err
	}
	defer release()
	r.began, r.after, r.spec = time.Now(), sleepsAfter(object), started(object)
	options, stored, err := c.fleet.optionsOf(object, r)
	if err != nil {
		return nil, err
	}
	options.Later = r.later
	heartbeats := stored.HeartbeatResource
	stored.OnChange = func(of sqlstore.Resource) {
		if of != heartbeats {
			r.writes.Add(1)
		}
	}
	built := make(chan *server.Server, 1)
	process := server.Process{
		Options: options, Store: stored, Outlived: true,
		Open: func(ctx context.Context, o sqlstore.Options) (_ *sqlstore.Store, err error) {
			r.store, err = c.fleet.config.Databases.Open(ctx, object.Status.Database, o)
			return r.store, err
		},
		Built:   func(_ context.Context, s *server.Server) { built <- s },
		Stopped: func(*sqlstore.Store) { c.inspect(r) },
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.contain(func() error { return process.Run(ctx, nil) }) }()
	select {
	case r.server = <-built:
		if prepared(object, r.server) {
			r.settling = true
			go r.settle(ctx)
		} else {
			close(r.later)
			err = r.server.Wait(ctx)
		}
	case err = <-stopped:
		stopped <- err
	}
	if err == nil {
		err = c.fleet.bindAdministrators(ctx, r.server, object)
	}
	if ready := c.fleet.config.Ready; err == nil && ready != nil {
		err = ready(ctx, object, options, r.server)
	}
	if err == nil {
		err = r.bound(ctx, object.Spec.Limits)
	}
	if err == nil {
		err = c.learn(r.server)
	}
	if err != nil {
		r.stop()
		return nil, errors.Join(err, <-stopped)
	}
	r.took = time.Since(r.began)
	wakeDuration.Observe(r.took.Seconds())
	return stopped, nil
}

// prepared reports whether the cluster has all that a new one is given, so that requests can be answered before that is checked.
func prepared(o *v1alpha1.Cluster, s *server.Server) bool {
	return !s.Fresh() && (o.Status.Wakes > 0 || o.Spec.From != nil)
}

const (
	// settleSoon is how long a cluster that has woken up waits for the end of its first request.
	settleSoon = time.Second
	// settlePause is how often it looks whether others still wait to wake up.
	settlePause = 20 * time.Millisecond
	// settleTimeout is how long it has a turn, and how long it lets others go first.
	settleTimeout = 5 * time.Second
)

// settle lets a cluster that has woken up begin with what no request waits for: after its first answer, and one cluster after the other, so
// that others can wake up meanwhile.
func (r *running) settle(ctx context.Context) {
	select {
	case <-r.first:
	case <-time.After(settleSoon):
	case <-ctx.Done():
		return
	}
	release, err := r.cluster.fleet.settling.take(ctx, r.cluster.name.Namespace)
	if err != nil {
		return
	}
	defer release()
	for until := time.Now().Add(settleTimeout); r.cluster.fleet.turns.wanted() && time.Now().Before(until); {
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return
		}
	}
	close(r.later)
	waiting, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_ = r.server.Wait(waiting) // it goes on without a turn
	r.mu.Lock()
	r.settling, r.last = false, time.Now() // it may sleep when its controllers have had time
	r.mu.Unlock()
}

// contain returns a panic of run as an error, and closes the database then, so that it can be opened again: the other clusters live on.
func (r *running) contain(run func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = server.Panicked(cause)
			if r.store != nil {
				err = errors.Join(err, r.store.Close())
			}
		}
	}()
	return run()
}

// enter counts a request, unless the cluster is falling asleep.
func (r *running) enter(watch bool) (leave func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return nil, false
	}
	count := &r.requests
	if watch {
		count = &r.watches
	} else {
		r.last = time.Now()
	}
	r.asked = true
	*count++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		*count--
		if !watch {
			r.last = time.Now()
		}
		if !r.greeted {
			r.greeted = true
			close(r.first)
		}
		r.notice()
	}, true
}

// notice closes quiet if it is time. r.mu is held.
func (r *running) notice() {
	if r.stopping && r.requests+r.watches == 0 {
		select {
		case <-r.quiet:
		default:
			close(r.quiet)
		}
	}
}

// answered implements server.Hosted.Answered.
func (r *running) answered(ctx context.Context) error {
	r.mu.Lock()
	r.stopping = true
	r.notice()
	r.mu.Unlock()
	select {
	case <-r.quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("requests of the cluster still run: %w", ctx.Err())
	}
}

// stop puts the cluster to sleep, and returns when it sleeps or ctx ends.
func (c *cluster) stop(ctx context.Context) {
	c.mu.Lock()
	r := c.running
	c.mu.Unlock()
	if r == nil {
		return
	}
	r.mu.Lock()
	r.stopping = true
	r.notice()
	r.mu.Unlock()
	r.stop()
	select {
	case <-r.ended:
	case <-ctx.Done():
	}
}

// end puts the cluster to sleep for good.
func (c *cluster) end(ctx context.Context) {
	c.mu.Lock()
	c.gone = errGone
	c.mu.Unlock()
	c.stop(ctx)
	c.fleet.alarms.set(&c.alarm, time.Time{}, c)
}

// current returns what runs, nil if the cluster sleeps or is not awake yet.
func (c *cluster) current() *running {
	c.mu.Lock()
	r := c.running
	c.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.ready:
		if r.failed == nil {
			return r
		}
	default:
	}
	return nil
}

// ring implements ringer: it is time for the reconciler.
func (c *cluster) ring(time.Time) { c.fleet.look(c.name) }

func logFailure(what string, name types.NamespacedName, err error) {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errAbandoned) && !errors.As(err, new(*Elsewhere)) {
		slog.Error(what, "cluster", name.String(), "error", err)
	}
}
