package fleet

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
)

// limits are those of a cluster's requests. All methods work for nil, which allows everything.
type limits struct {
	requests  *rate.Limiter // nil for no limit
	perSecond int32
	watches   int32 // 0 for no limit
	open      atomic.Int32
}

// limited returns the limits of a cluster. If these are as before, it returns them.
func limited(before *limits, l v1alpha1.Limits) *limits {
	if l.RequestsPerSecond == 0 && l.Watches == 0 {
		return nil
	}
	if before != nil && before.perSecond == l.RequestsPerSecond && before.watches == l.Watches {
		return before
	}
	made := &limits{perSecond: l.RequestsPerSecond, watches: l.Watches}
	if l.RequestsPerSecond > 0 {
		made.requests = rate.NewLimiter(rate.Limit(l.RequestsPerSecond), int(l.RequestsPerSecond)) // a second's may come together
	}
	if before != nil {
		made.open.Store(before.open.Load())
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

// boundsOf returns what the database of a cluster may hold.
func boundsOf(l v1alpha1.Limits) (b sqlstore.Bounds) {
	b.Objects = sqlstore.Bound{Limit: l.Objects, Setting: "spec.limits.objects"}
	if l.Storage != nil {
		b.Bytes = sqlstore.Bound{Limit: l.Storage.Value(), Setting: "spec.limits.storage"}
	}
	return b
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
