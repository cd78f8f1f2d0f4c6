package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

	mu      sync.Mutex
	running *running // nil while it sleeps
	gone    bool     // it is being deleted, and does not wake up any more
	identity
}

// running is a cluster that is not asleep.
type running struct {
	ready chan struct{} // closed when it is awake, or failed is set
	ended chan struct{} // closed when everything has stopped
	stop  context.CancelFunc

	// These are set before ready is closed.
	failed error
	server *server.Server
	store  *sqlstore.Store
	after  time.Duration // of idleness until it falls asleep; 0 for never
	began  time.Time
	took   time.Duration

	mu       sync.Mutex
	stopping bool          // no more requests may enter
	requests int           // that run, except watches
	watches  int           // that run
	last     time.Time     // when a request came or ended
	quiet    chan struct{} // closed when stopping and nothing runs
}

// errGone means that a cluster is being deleted.
var errGone = errors.New("the cluster is being deleted")

// enter wakes the cluster, unless it is awake, and counts a request until leave is called.
func (c *cluster) enter(ctx context.Context, watch bool) (s *server.Server, leave func(), err error) {
	for {
		r, err := c.wake(ctx)
		if err != nil {
			return nil, nil, err
		}
		if leave, ok := r.enter(watch); ok {
			return r.server, leave, nil
		}
		select { // it is falling asleep
		case <-r.ended:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
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
	if c.gone {
		c.mu.Unlock()
		return nil, errGone
	}
	r := c.running
	if r == nil {
		r = &running{ready: make(chan struct{}), ended: make(chan struct{}), quiet: make(chan struct{})}
		var running context.Context
		running, r.stop = context.WithCancel(context.Background())
		c.running = r
		go c.run(running, r)
	}
	c.mu.Unlock()
	select {
	case <-r.ready:
		return r, r.failed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run runs the cluster's server until ctx ends.
func (c *cluster) run(ctx context.Context, r *running) {
	defer func() {
		c.mu.Lock()
		c.running = nil
		c.mu.Unlock()
		r.stop()
		close(r.ended)
	}()
	fail := func(err error) {
		r.failed = err
		close(r.ready)
		logFailure("waking a cluster failed", c.name, err)
	}
	c.fleet.waking <- struct{}{}
	slot := sync.OnceFunc(func() { <-c.fleet.waking })
	defer slot()
	r.began = time.Now()
	object, err := c.fleet.get(ctx, c.name)
	if err != nil {
		fail(err)
		return
	}
	options, stored, err := c.fleet.optionsOf(object, r)
	if err != nil {
		fail(err)
		return
	}
	r.after = sleepsAfter(object)
	built := make(chan *server.Server, 1)
	process := server.Process{
		Options: options, Store: stored, Outlived: true,
		Open: func(ctx context.Context, o sqlstore.Options) (_ *sqlstore.Store, err error) {
			r.store, err = c.fleet.config.Databases.Open(ctx, object.Status.Database, o)
			return r.store, err
		},
		Built: func(_ context.Context, s *server.Server) { built <- s },
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx, nil) }()
	select {
	case r.server = <-built:
		err = r.server.Wait(ctx)
	case err = <-ended:
		ended <- err
	}
	if err != nil {
		r.stop()
		fail(errors.Join(err, <-ended))
		return
	}
	if err := c.learn(r.server); err != nil {
		r.stop()
		fail(errors.Join(err, <-ended))
		return
	}
	slot()
	r.took, r.last = time.Since(r.began), time.Now()
	close(r.ready)
	c.fleet.naps.add(c, r)
	c.fleet.woke(c, r)
	if err := <-ended; err != nil {
		logFailure("a cluster ended", c.name, err)
	}
	c.fleet.slept(c, r)
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
	*count++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		*count--
		if !watch {
			r.last = time.Now()
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

// nap puts the cluster to sleep if nobody has asked for a while. Otherwise it returns when to look again.
func (r *running) nap(now time.Time) (again time.Time, asleep bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch due := r.last.Add(r.after); {
	case r.stopping:
		return time.Time{}, true
	case r.requests > 0:
		return now.Add(r.after), false
	case now.Before(due):
		return due, false
	}
	r.stopping = true
	r.notice()
	r.stop()
	return time.Time{}, true
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
	c.gone = true
	c.mu.Unlock()
	c.stop(ctx)
}

func sleepsAfter(o *v1alpha1.Cluster) time.Duration {
	if o.Spec.Sleep.After == nil {
		return idle
	}
	return o.Spec.Sleep.After.Duration
}
