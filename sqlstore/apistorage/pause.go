package apistorage

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/sqube/sqube/sqlstore"
)

// Pausing is a watch that takes less memory while its reader has nothing to encode, if the reader lets it. It then pauses: it closes its
// channel, and Stop has no effect.
type Pausing interface {
	watch.Interface

	// MayPause lets the watch pause.
	MayPause()
	// Resume waits until a watch that has paused has something that the reader must encode. It then has a new channel, for which the reader
	// calls ResultChan and Stop again. If the watch is made for encoded events (see WithEvents), Resume sends to out whatever it can.
	// It returns false once the watch has ended.
	Resume(out Sink) bool
	// End ends the watch. It is the reader's last call.
	End()
}

type deadlineKey struct{}

// WithDeadline returns a context whose watch ends at a time. It takes less memory than a context that ends then.
func WithDeadline(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, deadlineKey{}, at)
}

const (
	// pauseAfter is how long a watch whose changes need the reader's encoder has seen none when it pauses. To begin again costs as much as a
	// few events.
	pauseAfter = 30 * time.Second
	// quietAfter is how long it has sent nothing at all, not even a bookmark. It is short, so that few watches keep a second goroutine: the
	// runtime can't return the memory of one stack while its neighbours are in use.
	quietAfter = 20 * time.Millisecond
	// stuckAfter is how long a client may take until that is checked again.
	stuckAfter = time.Second
)

// States of a watcher.
const (
	isRunning = iota
	hasPaused // only the reader uses the watcher
	hasStopped
)

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	if w.state.CompareAndSwap(isRunning, hasStopped) {
		w.follower.Stop()
	}
}

// MayPause implements Pausing.
func (w *watcher) MayPause() { w.mayPause.Store(true) }

// pause reports whether the watch pauses, because it has nothing to send, and its client has received all. If not, pause is called again after
// the returned time. A watch whose event can't be sent has ended before: see CacheEncode.
func (w *watcher) pause() (paused bool, again time.Duration) {
	if !w.mayPause.Load() {
		return false, pauseAfter
	}
	if again = pauseAfter - time.Since(w.changed); again > 0 && !w.relays() {
		return false, again
	}
	if w.sent != w.seen {
		w.seen = w.sent
		return false, quietAfter
	}
	t := &w.inFlight
	t.mu.Lock()
	defer t.mu.Unlock()
	received := len(w.result) == 0 && !t.writing && t.first == len(t.events)
	if !received || w.ctx.Err() != nil || !w.state.CompareAndSwap(isRunning, hasPaused) {
		return false, stuckAfter
	}
	t.events, t.first = nil, 0
	return true, 0
}

// relays reports whether Resume sends changes.
func (w *watcher) relays() bool { return w.events != nil && !w.encodes }

// Resume implements Pausing.
func (w *watcher) Resume(out Sink) bool {
	if !w.isPaused() {
		return false
	}
	w.encodes = false
	for {
		var rest []*sqlstore.Change
		select {
		case <-w.ctx.Done():
			return false
		case <-w.sub.Ready():
			if !w.relays() {
				break
			}
			var err error
			if rest, err = w.relay(out); err != nil {
				return false
			}
			if len(rest) == 0 {
				continue
			}
			w.encodes = true
		case <-w.bookmarks.C:
			w.bookmarks.Reset(0)
		}
		w.start(func() error {
			if err := w.changes(rest); err != nil {
				return err
			}
			return w.follow()
		})
		return true
	}
}

// isPaused reports whether the watch has paused, and waits until its goroutine has ended.
func (w *watcher) isPaused() bool {
	if w.state.Load() != hasPaused {
		return false
	}
	if w.result != nil {
		for range w.result {
		}
		w.result = nil
	}
	return true
}

// End implements Pausing.
func (w *watcher) End() {
	w.Stop()
	w.follower.Stop()
	if w.isPaused() {
		w.state.Store(hasStopped)
		w.end()
	}
}

var _ Pausing = (*watcher)(nil)
