package fleet

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
)

// limits are those of a cluster's requests. All methods work for nil, which allows everything.
type limits struct {
	requests  *rate.Limiter // nil for no limit
	perSecond int32
	watches   int32 // 0 for no limit
	open      *atomic.Int32
}

// limited returns the limits of a cluster. If these are as before, it returns them.
func limited(before *limits, l v1alpha1.Limits) *limits {
	if l.RequestsPerSecond == 0 && l.Watches == 0 {
		return nil
	}
	if before != nil && before.perSecond == l.RequestsPerSecond && before.watches == l.Watches {
		return before
	}
	made := &limits{perSecond: l.RequestsPerSecond, watches: l.Watches, open: &atomic.Int32{}}
	if l.RequestsPerSecond > 0 {
		made.requests = rate.NewLimiter(rate.Limit(l.RequestsPerSecond), int(l.RequestsPerSecond)) // a second's may come together
	}
	if before != nil {
		made.open = before.open
	}
	return made
}

const (
	// retryRequest and retryWatch are how many seconds later a client may try again that was over a limit.
	retryRequest = 1
	retryWatch   = 5
)

// begin lets a request begin, and returns what to call at its end, or else the error for its client.
func (l *limits) begin(watch bool) (end func(), err error) {
	end = func() {}
	if l == nil {
		return end, nil
	}
	if l.requests != nil && !l.requests.Allow() {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("the cluster gets more requests than spec.limits.requestsPerSecond allows, %d", l.perSecond), retryRequest)
	}
	if !watch {
		return end, nil
	}
	if open := l.open.Add(1); l.watches > 0 && open > l.watches {
		l.open.Add(-1)
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("the cluster has as many open watches as spec.limits.watches allows, %d", l.watches), retryWatch)
	}
	return func() { l.open.Add(-1) }, nil
}

// seats limit how many requests of all clusters run at once. While all are taken, the clusters take turns: one that floods waits for its own
// requests, and each other one waits for one of them at most.
type seats struct{ *turns }

const (
	// seatsPerProcessor lets requests wait for the disk meanwhile, and leaves each a fair share of the processor.
	seatsPerProcessor = 16
	// seatTime is how long a request keeps a seat. A longer one waits for something else, such as its client, or another request.
	seatTime = time.Second
)

func newSeats() seats { return seats{newTurns(seatsPerProcessor * runtime.GOMAXPROCS(0))} }

// sit waits for a seat, which stand gives up. It returns the cause if ctx ends first.
func (s seats) sit(ctx context.Context, cluster types.NamespacedName) (stand func(), err error) {
	release, err := s.take(ctx, cluster.String())
	if err != nil {
		return nil, err
	}
	timer := time.AfterFunc(seatTime, release)
	return func() {
		timer.Stop()
		release()
	}, nil
}

// boundsOf returns what the database of a cluster may hold.
func boundsOf(l v1alpha1.Limits) (b sqlstore.Bounds) {
	b.Objects = sqlstore.Bound{Limit: l.Objects, Setting: "spec.limits.objects"}
	if l.Storage != nil {
		b.Bytes = sqlstore.Bound{Limit: l.Storage.Value(), Setting: "spec.limits.storage"}
	}
	return b
}

const (
	// ofHost is the part of the host's memory for caches and watches that one cluster may use, unless it has a limit of its own.
	ofHost = 4
	// watchPart is the part of spec.limits.memory for events that watches have not sent.
	watchPart = 4
)

// limitMemory sets how much memory the store of a cluster may use.
func limitMemory(stored *sqlstore.Options, l v1alpha1.Limits) {
	if stored.FollowerMemory == 0 {
		stored.FollowerMemory = sqlstore.DefaultFollowerMemory
	}
	if l.Memory != nil {
		total := l.Memory.Value()
		stored.FollowerMemory = max(total/watchPart, 1)
		stored.CacheBytes = max(total-stored.FollowerMemory, 1)
		return
	}
	stored.FollowerMemory /= ofHost
	if stored.CacheBytes != sqlstore.NoCache {
		stored.CacheBytes /= ofHost
	}
}

// limitHistory leaves at least half of the bound of the database's size for objects.
func limitHistory(stored *sqlstore.Options, l v1alpha1.Limits) {
	if l.Storage == nil || l.Storage.IsZero() {
		return
	}
	if half := max(l.Storage.Value()/2, 1); stored.HistoryBytes == 0 || stored.HistoryBytes > half {
		stored.HistoryBytes = half
	}
}

// bound limits a cluster that is awake. What a new cluster has by default is made before.
func (r *running) bound(ctx context.Context, l v1alpha1.Limits) error {
	bounds := boundsOf(l)
	if before := r.bounds.Load(); before != nil && *before == bounds {
		return nil
	}
	r.bounds.Store(&bounds)
	return r.store.SetBounds(ctx, bounds)
}
