package apistorage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/sqube/sqube/sqlstore"
)

// resultBuffer is how many events wait for the client. An idle watch has the room for them, too.
const resultBuffer = 16

// watcher is one watch.
//
//	start ─► initial state, if asked for ─► bookmark that ends it
//	      ─► replay from the log, up to where the subscription begins
//	      ─► changes of the subscription, and a bookmark now and then, with pauses
type watcher struct {
	*Storage
	follower *sqlstore.Follower
	ctx      context.Context // the follower's
	opts     storage.ListOptions
	// row is the key, or prefix of keys, of the rows watched. full is what the caller gave.
	row, full string
	// from is the revision up to which the client has seen everything.
	from     int64
	events   *Events // nil if the reader takes objects
	metadata bool    // it takes only their metadata
	result   chan watch.Event
	sub      *sqlstore.Subscription
	inFlight inFlight

	deadline   time.Time   // zero if there is none
	expiry     *time.Timer // ends the watch at the deadline; nil if ctx does
	bookmarks  *time.Timer // fires when one is due
	changed    time.Time   // when the last change was sent
	sent, seen int         // how many events, now and when pause was last called
	mayPause   atomic.Bool
	encodes    bool         // the last changes needed the reader's encoder
	state      atomic.Int32 // isRunning, hasPaused or hasStopped
}

var (
	// errStopped ends a watch that is no longer read.
	errStopped = errors.New("the watch was stopped")
	// errPaused ends the goroutine of a watch that pauses.
	errPaused = errors.New("the watch has paused")
)

// Watch implements storage.Interface. The watch ends, and closes its channel, with ctx, with Stop, and if its reader is too slow.
// An error is the last event, of type Error. The caller must call Stop even after the end, and until then encode or get the
// objects of the events in order, which tells the watch how far its client is.
func (s *Storage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	row, full, err := s.rowKey(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	from, err := s.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w := &watcher{Storage: s, opts: opts, row: row, full: full, from: int64(min(from, math.MaxInt64))}
	// Read even if not needed: a client handles an error better now than in the stream.
	at, err := s.store.Position(ctx)
	if err != nil && ctx.Err() == nil { // a watch that has already ended does not fail
		return nil, ClientError(err)
	}
	if from == 0 && !w.sendsState() {
		// From now on, that is, before anything that the caller does next.
		w.from = at.Revision
	} else if !w.sendsState() && w.from < at.Revision {
		if err := s.guard(ctx, row, w.from+1); apierrors.IsForbidden(err) {
			return nil, w.tooOld(w.from + 1)
		} else if err != nil {
			return nil, err
		}
	}
	w.events, _ = ctx.Value(eventsKey{}).(*Events)
	w.metadata, _ = ctx.Value(metadataKey{}).(bool)
	w.inFlight.changed.L = &w.inFlight.mu
	w.follower = s.store.Follow(ctx)
	w.ctx = w.follower.Context()
	var expires bool
	if w.deadline, expires = ctx.Value(deadlineKey{}).(time.Time); expires {
		w.expiry = time.AfterFunc(time.Until(w.deadline), w.follower.Stop)
	} else {
		w.deadline, _ = ctx.Deadline()
	}
	w.start(w.watch)
	return w, nil
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// start calls serve, which sends events, in a new goroutine.
func (w *watcher) start(serve func() error) {
	w.state.Store(isRunning)
	w.result = make(chan watch.Event, resultBuffer)
	go w.run(serve)
}

func (w *watcher) run(serve func() error) {
	err := serve()
	switch {
	case w.ctx.Err() != nil, errors.Is(err, errStopped), errors.Is(err, errPaused), errors.Is(err, sqlstore.ErrSlow), errors.Is(err, sqlstore.ErrClosed):
		// The client sees the end of the stream and starts a new watch, unless this one pauses.
	default:
		w.fail(err)
	}
	close(w.result)
	if errors.Is(err, errPaused) {
		return
	}
	if w.sub != nil {
		w.sub.Close()
	}
	<-w.ctx.Done() // until then the client may read what was sent
	w.end()
}

// end releases everything.
func (w *watcher) end() {
	for _, timer := range []*time.Timer{w.expiry, w.bookmarks} {
		if timer != nil {
			timer.Stop()
		}
	}
	w.releaseAll()
	w.follower.Close()
}

func (w *watcher) watch() error {
	err := w.begin()
	utilflowcontrol.WatchInitialized(w.ctx)
	if err != nil {
		return err
	}
	if !storable(w.row) {
		<-w.ctx.Done() // no object can have such a key
		return errStopped
	}
	w.sub = w.follower.Subscribe(w.resource, w.row, w.terms(&w.opts.Predicate)...)
	if err := w.replay(); err != nil {
		return err
	}
	w.bookmarks = time.NewTimer(w.untilBookmark())
	return w.follow()
}

func (w *watcher) fail(err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	object := status.Status()
	select {
	case w.result <- watch.Event{Type: watch.Error, Object: &object}:
	case <-w.ctx.Done():
	}
}

// follow sends the changes of the subscription until the watch ends or pauses.
func (w *watcher) follow() error {
	quiet := time.NewTimer(quietAfter)
	defer quiet.Stop()
	for {
		changes, err := w.sub.Drain()
		if err != nil {
			return err
		}
		if err := w.changes(changes); err != nil {
			return err
		}
		select {
		case <-w.ctx.Done():
			return errStopped
		case <-w.sub.Ready():
		case <-w.bookmarks.C:
			sent, err := w.progress()
			if err != nil {
				return err
			}
			if !sent {
				w.bookmarks.Reset(bookmarkRetry)
				continue
			}
			w.bookmarks.Reset(w.untilBookmark())
		case <-quiet.C:
			paused, again := w.pause()
			if paused {
				return errPaused
			}
			quiet.Reset(again)
		}
	}
}

// changes sends changes, or releases them after an error.
func (w *watcher) changes(changes []*sqlstore.Change) (err error) {
	for i, c := range changes {
		if err == nil {
			err = w.change(c)
		} else {
			w.follower.Done(c)
		}
		changes[i] = nil
	}
	return err
}

// replay sends the changes after w.from that precede the subscription.
func (w *watcher) replay() error {
	if w.from >= w.sub.Start {
		return nil
	}
	err := w.follower.Replay(w.resource, w.row, w.terms(&w.opts.Predicate), w.from, w.sub.Start, w.change)
	if errors.Is(err, sqlstore.ErrCompacted) {
		at, err := w.store.Position(w.ctx)
		if err != nil {
			return ClientError(err)
		}
		return w.tooOld(at.Compacted)
	}
	return ClientError(err)
}

// tooOld returns the error of a watch that begins before a revision.
func (w *watcher) tooOld(oldest int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.from, oldest))
}

// send sends an event, and waits until the client takes it.
func (w *watcher) send(event watch.Event) error {
	select {
	case w.result <- event:
		w.sent++
		return nil
	case <-w.ctx.Done():
		return errStopped
	}
}

var _ watch.Interface = (*watcher)(nil)
