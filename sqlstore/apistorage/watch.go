package apistorage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

const (
	// bookmarkEvery is the pause between bookmarks, bookmarkBefore how long
	// before the end of a watch a last one comes, so that the client resumes
	// from there (KEP-956).
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	// progressEvery is the pause for in-process clients that ask for progress.
	progressEvery = 5 * time.Second

	// bookmarkRetry is the pause before a bookmark that was due is tried again.
	bookmarkRetry = 10 * time.Millisecond

	resultBuffer = 100
)

// watcher is one watch.
//
//	start ─► initial state, if asked for ─► bookmark that ends it
//	      ─► replay from the log up to where the subscription begins
//	      ─► the subscription's changes, and a bookmark now and then
type watcher struct {
	*Storage
	follower *sqlstore.Follower
	ctx      context.Context // the follower's
	opts     storage.ListOptions
	// row is the key or prefix of rows watched, full the same as the caller
	// gave it.
	row, full string
	// from is the revision up to which the client knows everything.
	from     int64
	events   *Events // nil where the reader takes objects
	result   chan watch.Event
	sub      *sqlstore.Subscription
	inFlight inFlight
}

// errStopped ends a watch that nobody reads any more.
var errStopped = errors.New("the watch was stopped")

// Watch implements storage.Interface. The watch ends, its channel closed, with
// ctx, with Stop, and when its reader is too slow; errors come as an event of
// type Error, the last one. The caller must Stop it, also when it has ended, and
// until then encode, or get, the objects of events in their order: that tells
// the watch how far its client is.
func (s *Storage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	row, full, err := s.rowKey(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	from, err := s.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w := &watcher{Storage: s, opts: opts, row: row, full: full, from: int64(min(from, math.MaxInt64)), result: make(chan watch.Event, resultBuffer)}
	// Also asked where the answer is not needed: that the database is not there
	// can be told better now than in the stream.
	at, err := s.store.Position(ctx)
	if err != nil && ctx.Err() == nil { // a watch that has ended already is none that fails
		return nil, interpret(err)
	}
	if from == 0 && !w.sendsState() {
		// From now on, which is before the caller does anything else.
		w.from = at.Revision
	}
	w.events, _ = ctx.Value(eventsKey{}).(*Events)
	w.inFlight.changed.L = &w.inFlight.mu
	w.follower = s.store.Follow(ctx)
	w.ctx = w.follower.Context()
	go w.run()
	return w, nil
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.follower.Stop() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

func (w *watcher) run() {
	w.watch()
	close(w.result)
	if w.sub != nil {
		w.sub.Close()
	}
	<-w.ctx.Done() // until then the client may take what it has been sent
	w.releaseAll()
	w.follower.Close()
}

func (w *watcher) watch() {
	err := w.begin()
	utilflowcontrol.WatchInitialized(w.ctx)
	if err == nil {
		err = w.follow()
	}
	switch {
	case w.ctx.Err() != nil, errors.Is(err, errStopped), errors.Is(err, sqlstore.ErrSlow), errors.Is(err, sqlstore.ErrClosed):
		// The client sees the end of the stream and comes back.
	default:
		w.fail(err)
	}
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

// sendsState says whether the watch begins with the state of what is watched:
// the options ask for it, or name no revision and do not decline it (API
// concepts, "Semantics for watch"; KEP-3157).
func (w *watcher) sendsState() bool {
	if w.opts.SendInitialEvents != nil {
		return *w.opts.SendInitialEvents
	}
	return w.from == 0
}

// begin sends the state where the watch begins with it, and so finds the
// revision behind which changes are to be sent.
func (w *watcher) begin() error {
	if !w.sendsState() {
		return nil
	}
	if err := w.initialState(); err != nil {
		return err
	}
	if w.opts.SendInitialEvents != nil && w.opts.Predicate.AllowWatchBookmarks {
		return w.bookmark(w.from, true)
	}
	return nil
}

func (w *watcher) initialState() error {
	if err := w.awaitRevision(w.ctx, w.opts.ResourceVersion, 0); err != nil {
		return err
	}
	opts := w.opts
	opts.Predicate.Limit, opts.Predicate.Continue = 0, ""
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	l := &walk{Storage: w.Storage, opts: opts, full: w.full,
		query: sqlstore.Query{Resource: w.resource, Prefix: w.row, Bytes: sqlstore.FollowBytes}}
	var found []*sqlstore.Record
	l.accept = func(r *sqlstore.Record) (bool, error) {
		found = append(found, r)
		return true, nil
	}
	send := func(read func() error) error {
		err := w.follower.Read(w.resource, func() (cost int, err error) {
			err = read()
			for _, r := range found {
				cost += sqlstore.Cost(len(r.Value))
			}
			return cost, err
		})
		for i, r := range found {
			if found[i] = nil; err == nil {
				err = w.current(r, l.undecided(r))
			} else {
				w.follower.Forget(sqlstore.Cost(len(r.Value)))
			}
		}
		found = found[:0]
		return err
	}
	var err error
	if !w.opts.Recursive {
		err = send(func() error { return l.single(w.ctx, w.row) })
	} else if err = l.begin(w.ctx); err == nil {
		for err == nil && l.hasNext() {
			err = send(func() error { return l.page(w.ctx) })
		}
	}
	w.from = l.query.Revision
	return err
}

// current sends a record of the initial state, and forgets what was read. Where
// it is undecided, that is up to the object.
func (w *watcher) current(r *sqlstore.Record, undecided bool) error {
	p := sentEvent{size: len(r.Value), cost: sqlstore.Cost(len(r.Value))}
	var obj runtime.Object
	err := w.await(p.size)
	if err == nil && undecided {
		if obj, err = w.decoded(r, r.Revision); err == nil {
			if ok, err := w.opts.Predicate.Matches(obj); err != nil || !ok {
				w.release(p)
				return nil
			}
		}
	}
	if err == nil && (obj == nil || w.events != nil) {
		obj, err = w.object(r, r.Revision)
	}
	if err != nil {
		w.release(p)
		return err
	}
	return w.deliver(watch.Added, &delivery{object: obj}, p)
}

// object returns the object of a record as it is sent: with the resourceVersion
// of that revision.
func (w *watcher) object(r *sqlstore.Record, revision int64) (runtime.Object, error) {
	if w.events == nil {
		return w.decoded(r, revision)
	}
	raw := &Raw{TypeMeta: w.events.TypeMeta, Format: w.events.Format}
	if err := w.getRaw(w.ctx, r, w.prefix+r.Key, raw); err != nil {
		return nil, err
	}
	raw.revision = revision
	return raw, nil
}

func (w *watcher) decoded(r *sqlstore.Record, revision int64) (runtime.Object, error) {
	obj := w.NewObject()
	if _, _, err := w.open(w.ctx, r, w.prefix+r.Key, obj); err != nil {
		return nil, err
	}
	return obj, w.versioner.UpdateObject(obj, uint64(revision))
}

// follow sends the changes behind w.from until the watch ends.
func (w *watcher) follow() error {
	if !storable(w.row) {
		<-w.ctx.Done() // nothing can ever happen there
		return errStopped
	}
	w.sub = w.follower.Subscribe(w.resource, w.row, terms(&w.opts.Predicate)...)
	if err := w.replay(); err != nil {
		return err
	}
	bookmarks := time.NewTimer(w.untilBookmark())
	defer bookmarks.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return errStopped
		case <-w.sub.Ready():
			changes, err := w.sub.Drain()
			if err != nil {
				return err
			}
			for i, c := range changes {
				if err == nil {
					err = w.change(c)
				} else {
					w.follower.Done(c)
				}
				changes[i] = nil
			}
			if err != nil {
				return err
			}
		case <-bookmarks.C:
			if w.opts.Predicate.AllowWatchBookmarks || w.opts.ProgressNotify {
				sent, err := w.progress()
				if err != nil {
					return err
				}
				if !sent {
					bookmarks.Reset(bookmarkRetry)
					continue
				}
			}
			bookmarks.Reset(w.untilBookmark())
		}
	}
}

// replay sends what lies between the client's knowledge and the beginning of
// the subscription.
func (w *watcher) replay() error {
	if w.from >= w.sub.Start {
		return nil
	}
	err := w.follower.Replay(w.resource, w.row, w.from, w.sub.Start, w.change)
	if errors.Is(err, sqlstore.ErrCompacted) {
		at, err := w.store.Position(w.ctx)
		if err != nil {
			return interpret(err)
		}
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.from, at.Compacted))
	}
	return interpret(err)
}

// change sends one change as the watch's selectors see it: an object that
// begins to match is added, one that no longer does is deleted. It lets go of
// the change.
func (w *watcher) change(c *sqlstore.Change) error {
	if c.Record.Revision <= w.from {
		w.follower.Done(c)
		return nil
	}
	event, err := w.event(c)
	if err != nil {
		w.follower.Done(c)
		return err
	}
	w.from = c.Record.Revision
	if event == "" {
		w.follower.Done(c)
		return nil
	}
	last := event == watch.Deleted
	size := len(c.Record.Value)
	if last {
		size = len(c.Previous.Value)
	}
	if err := w.await(size); err != nil {
		w.follower.Done(c)
		return err
	}
	p := sentEvent{size: size, change: c}
	decode := func() (runtime.Object, error) {
		obj, err := w.objectOf(c, last, w.object)
		if raw, ok := obj.(*Raw); ok {
			raw.change = true
		}
		return obj, err
	}
	if c.Watchers > 1 {
		key := sharedKey{storage: w.Storage, last: last}
		if w.events != nil {
			key.events = *w.events
		}
		slot, ok := c.Cache.Load(key)
		if !ok {
			slot, _ = c.Cache.LoadOrStore(key, &sharedObject{})
		}
		shared := slot.(*sharedObject)
		use, err := shared.use(w.store, size, decode)
		if err != nil {
			w.follower.Done(c)
			return err
		}
		p.shared = shared
		w.follower.Share(decodedAndEncoded * size)
		return w.deliver(event, &delivery{shared: use}, p)
	}
	if c.Watchers > 0 { // what Replay reads is counted as a whole
		p.held = decodedAndEncoded * size
		w.follower.Hold(p.held)
	}
	obj, err := decode()
	if err != nil {
		w.release(p)
		return err
	}
	return w.deliver(event, &delivery{object: obj}, p)
}

// event returns what the change is to the watch, "" for nothing.
func (w *watcher) event(c *sqlstore.Change) (watch.EventType, error) {
	is, err := w.selects(c, false)
	if err != nil {
		return "", err
	}
	was, err := w.selects(c, true)
	if err != nil {
		return "", err
	}
	switch {
	case is && was:
		return watch.Modified, nil
	case is:
		return watch.Added, nil
	case was:
		return watch.Deleted, nil
	}
	return "", nil
}

// selects says whether the selectors match the version that c made, or the
// previous one.
func (w *watcher) selects(c *sqlstore.Change, previous bool) (bool, error) {
	if previous && c.Previous == nil || !previous && c.Operation == dialect.Delete {
		return false, nil
	}
	pred := &w.opts.Predicate
	if pred.Empty() && !sharded(pred) {
		return true, nil
	}
	record := &c.Record
	if previous {
		record = c.Previous
	}
	if !undecided(pred, record) {
		return matches(pred, record), nil
	}
	obj, err := w.objectOf(c, previous, w.decoded)
	if err != nil {
		return false, err
	}
	matched, err := pred.Matches(obj)
	return err == nil && matched, nil
}

// send delivers an event, waiting for the client as long as it takes.
func (w *watcher) send(event watch.Event) error {
	select {
	case w.result <- event:
		return nil
	case <-w.ctx.Done():
		return errStopped
	}
}

// progress sends a bookmark, or returns false while changes wait to be sent.
func (w *watcher) progress() (bool, error) {
	revision, current := w.sub.Progress()
	if !current {
		return false, nil
	}
	if revision < w.from {
		return true, nil // the client is ahead: nothing to tell it yet
	}
	w.from = revision
	return true, w.bookmark(revision, false)
}

func (w *watcher) bookmark(revision int64, endsInitialState bool) error {
	obj := w.NewObject()
	if err := w.versioner.UpdateObject(obj, uint64(revision)); err != nil {
		return err
	}
	if endsInitialState {
		if err := storage.AnnotateInitialEventsEndBookmark(obj); err != nil {
			return err
		}
	}
	return w.send(watch.Event{Type: watch.Bookmark, Object: obj})
}

// untilBookmark spreads the bookmarks of watches that began together.
func (w *watcher) untilBookmark() time.Duration {
	pause := bookmarkEvery + rand.N(bookmarkEvery/4)
	if w.opts.ProgressNotify {
		pause = progressEvery
	}
	if deadline, ok := w.ctx.Deadline(); ok {
		if last := time.Until(deadline) - bookmarkBefore; last > 0 {
			pause = min(pause, last)
		}
	}
	return pause
}

// unreadable is the error that watchers get for a change whose object can't
// be decoded.
func unreadable(c *sqlstore.Change, key string, err error) error {
	reason, message := metav1.StatusReasonInternalError, "unable to read the object"
	if c.Operation == dialect.Delete {
		reason, message = metav1.StatusReasonStoreReadError, "saw a DELETED event, but object data is corrupt"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  reason,
		Message: fmt.Sprintf("%s - key %q: %v", message, key, err),
	}}
}

var _ watch.Interface = (*watcher)(nil)
