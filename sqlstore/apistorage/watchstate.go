package apistorage

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sqube/sqube/sqlstore"
)

// sendsState reports whether the watch begins with the current state: the options request it, or have no revision and do not
// decline it (API concepts, "Semantics for watch"; KEP-3157).
func (w *watcher) sendsState() bool {
	if w.opts.SendInitialEvents != nil {
		return *w.opts.SendInitialEvents
	}
	return w.from == 0
}

// begin sends the current state, if the watch begins with that, and sets w.from to its revision.
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

// current sends a record of the initial state. If the record is undecided, its object decides whether it is sent.
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

// object returns the object of a record as it is sent, with revision as its resourceVersion.
func (w *watcher) object(r *sqlstore.Record, revision int64) (runtime.Object, error) {
	switch {
	case w.metadata:
		view := &metav1.PartialObjectMetadata{}
		if err := w.viewMetadata(w.ctx, r, w.prefix+r.Key, view); err != nil {
			return nil, err
		}
		return view, w.versioner.UpdateObject(view, uint64(revision))
	case w.events == nil:
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
