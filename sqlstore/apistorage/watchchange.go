package apistorage

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// change sends one change as seen through the selectors of the watch: an object that begins to match is added, one that no longer
// matches is deleted. It releases the change.
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
	size := len(version(c, event == watch.Deleted).Value)
	if err := w.await(size); err != nil {
		w.follower.Done(c)
		return err
	}
	p := sentEvent{size: size, change: c}
	if c.Watchers > 1 {
		shared := w.shared(c, event)
		use, err := shared.use(w.store, size, func() (runtime.Object, error) { return w.eventObject(c, event) })
		if err != nil {
			w.follower.Done(c)
			return err
		}
		p.shared = shared
		w.follower.Share(decodedAndEncoded * size)
		return w.deliver(event, &delivery{shared: use}, p)
	}
	if c.Watchers > 0 { // a change from Replay has already been counted
		p.held = decodedAndEncoded * size
		w.follower.Hold(p.held)
	}
	obj, err := w.eventObject(c, event)
	if err != nil {
		w.release(p)
		return err
	}
	return w.deliver(event, &delivery{object: obj}, p)
}

// version returns the version that a change made, or the last one, which it replaced.
func version(c *sqlstore.Change, last bool) *sqlstore.Record {
	if last {
		return c.Previous
	}
	return &c.Record
}

// eventObject returns the object of a change as it is sent in an event.
func (w *watcher) eventObject(c *sqlstore.Change, event watch.EventType) (runtime.Object, error) {
	last, object := event == watch.Deleted, w.object
	if last {
		object = w.readable
	}
	obj, err := w.objectOf(c, last, object)
	if raw, ok := obj.(*Raw); ok {
		raw.change = true
	}
	return obj, err
}

// readable is object for a version that was deleted, perhaps unread because it can't be read. Then it fails, as it would for a watch that
// decodes all objects.
func (w *watcher) readable(r *sqlstore.Record, revision int64) (runtime.Object, error) {
	obj, err := w.object(r, revision)
	if raw, ok := obj.(*Raw); ok && err == nil {
		_, err = raw.decode()
	}
	return obj, err
}

// event returns the type of event that the change is for the watch, "" for none.
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

// selects reports whether the selectors match the version that c made, or the one it replaced.
func (w *watcher) selects(c *sqlstore.Change, previous bool) (bool, error) {
	if previous && c.Previous == nil || !previous && c.Operation == dialect.Delete {
		return false, nil
	}
	pred := &w.opts.Predicate
	if matched, decided := w.decide(pred, version(c, previous)); decided {
		return matched, nil
	}
	obj, err := w.objectOf(c, previous, w.decoded)
	if err != nil {
		return false, err
	}
	matched, err := pred.Matches(obj)
	return err == nil && matched, nil
}

// unreadable is the error of a watch for a change whose object can't be decoded.
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
