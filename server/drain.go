package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/waitgroup"
	apifilters "k8s.io/apiserver/pkg/endpoints/filters"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
)

// minWatchesPerSecond is the minimum rate at which watches are ended while the server drains, like upstream.
const minWatchesPerSecond = 200

// inFlight counts requests from the network for --shutdown-send-retry-after and
// --shutdown-watch-termination-grace-period.
type inFlight struct {
	draining   <-chan struct{} // closed when the server accepts no new requests
	retryAfter bool
	watchGrace time.Duration
	short      *waitgroup.SafeWaitGroup
	watches    *waitgroup.RateLimitedSafeWaitGroup
}

func newInFlight(o *Options, draining <-chan struct{}) *inFlight {
	return &inFlight{
		draining: draining, retryAfter: o.ShutdownSendRetryAfter || o.DropConnections, watchGrace: o.ShutdownWatchTermination,
		short: &waitgroup.SafeWaitGroup{}, watches: &waitgroup.RateLimitedSafeWaitGroup{},
	}
}

// ShuttingDown implements request.ServerShutdownSignal.
func (f *inFlight) ShuttingDown() <-chan struct{} { return f.draining }

// count counts the requests that handler serves. With --shutdown-send-retry-after, requests get 429 once the server drains.
func (f *inFlight) count(handler http.Handler) http.Handler {
	if !f.retryAfter && f.watchGrace == 0 {
		return handler
	}
	if f.retryAfter {
		handler = serverfilters.WithWaitGroup(handler, longRunning, f.short)
	}
	if f.watchGrace > 0 {
		handler = serverfilters.WithWatchTerminationDuringShutdown(handler, f, f.watches)
	}
	if f.retryAfter {
		handler = serverfilters.WithRetryAfter(handler, f.draining)
	}
	return apifilters.WithRequestInfo(handler, requestInfo)
}

// drain calls begin, after which no new requests are accepted, and returns when the requests that must end before the server
// stops listening have ended, or when ctx ends.
func (f *inFlight) drain(ctx context.Context, begin func()) {
	watches, short := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watches)
		if f.watchGrace == 0 {
			begin()
			return
		}
		f.endWatches(begin)
	}()
	go func() {
		defer close(short)
		<-f.draining
		if f.retryAfter {
			f.short.Wait()
		}
	}()
	for _, ended := range []chan struct{}{watches, short} {
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// endWatches calls begin, and then ends watches gradually, so that their clients do not all reconnect to other servers at once.
func (f *inFlight) endWatches(begin func()) {
	before, after, err := f.watches.Wait(func(count int) (waitgroup.RateLimiter, context.Context, context.CancelFunc) {
		begin()
		ctx, cancel := context.WithTimeout(context.Background(), f.watchGrace)
		perSecond := max(float64(count)/f.watchGrace.Seconds(), minWatchesPerSecond)
		return rate.NewLimiter(rate.Limit(perSecond), 1), ctx, cancel
	})
	slog.Debug("watches have ended", "before", before, "after", after, "error", err)
}
