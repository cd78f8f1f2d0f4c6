package changes

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

const (
	// gather is how long a watch waits after a change for others, so that it reads the log at most ten times a second.
	gather = 100 * time.Millisecond
	// bookmarkInterval is how often a watch tells its client how far it is, as for other resources.
	bookmarkInterval = time.Minute
)

// watcher is a watch. All its events add changes: nothing happens to a change later. It reads the log after each commit, and sees each
// revision once, since revisions become visible in order.
type watcher struct {
	*reader
	rest      *REST
	selection *Selection
	bookmarks bool
	initial   bool  // whether to mark the end of the initial events
	last      int64 // the revision up to which the client has seen everything
	events    chan watch.Event
	ctx       context.Context
	stop      context.CancelFunc
}

// Watch implements rest.Watcher. Without a resourceVersion, it begins with the changes that are kept.
func (r *REST) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	s, err := selectionOf(ctx, options, time.Now())
	if err != nil {
		return nil, err
	}
	if s.NewestFirst {
		return nil, apierrors.NewBadRequest("a watch can't be ordered: its changes come as they happen")
	}
	w := &watcher{rest: r, selection: s, bookmarks: options.AllowWatchBookmarks, events: make(chan watch.Event)}
	if w.reader, err = r.reader(ctx); err != nil {
		return nil, err
	}
	from, err := r.await(ctx, options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	at, err := r.log.Store.Position(ctx)
	if err != nil {
		return nil, apistorage.ClientError(err)
	}
	switch asked := options.SendInitialEvents; {
	case asked != nil && *asked: // all that is kept, whatever the revision is
		w.initial = w.bookmarks
	case from > 0:
		w.last = from
		if err := w.stillKept(ctx); err != nil {
			return nil, err
		}
	case asked != nil:
		w.last = at.Revision
	}
	w.ctx, w.stop = context.WithCancel(ctx)
	go w.run()
	return w, nil
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

func (w *watcher) run() {
	defer close(w.events)
	err := w.follow()
	if err == nil || w.ctx.Err() != nil {
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	object := status.Status()
	_ = w.send(watch.Event{Type: watch.Error, Object: &object})
}

func (w *watcher) follow() error {
	bookmark := time.NewTicker(bookmarkInterval)
	defer bookmark.Stop()
	for begun := false; ; begun = true {
		if err := w.read(); err != nil {
			return err
		}
		if !begun {
			flowcontrol.WatchInitialized(w.ctx)
			if w.initial {
				if err := w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}); err != nil {
					return err
				}
			}
		}
		if err := w.wait(bookmark.C); err != nil {
			return err
		}
	}
}

// read sends the changes since the last read.
func (w *watcher) read() error {
	at, err := w.log.Store.Position(w.ctx)
	if err != nil {
		return apistorage.ClientError(err)
	}
	w.rights.refresh()
	clear(w.owners.known)
	clear(w.spans)
	s := *w.selection
	s.Between(w.last, at.Revision+1)
	err = w.each(w.ctx, &s, func(e *Entry) error {
		c, err := w.change(w.ctx, e, false)
		if err != nil {
			return err
		}
		return w.send(watch.Event{Type: watch.Added, Object: &c})
	})
	if err == nil && w.last > 0 {
		err = w.stillKept(w.ctx)
	}
	w.last = max(w.last, at.Revision)
	return err
}

// stillKept returns an error if changes after the last one that the client has seen were removed, or what it has seen was lost.
func (w *watcher) stillKept(ctx context.Context) error {
	kept, lost, err := w.log.Store.HistoryFrom(ctx, w.last)
	if err == nil && (w.last < kept || lost) {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.last, kept))
	}
	return apistorage.ClientError(err)
}

// wait returns when there may be more changes. Meanwhile it sends bookmarks.
func (w *watcher) wait(bookmark <-chan time.Time) error {
	select {
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-time.After(gather):
	}
	more := make(chan error, 1)
	go func() { more <- w.log.Store.Await(w.ctx, w.last+1) }()
	for {
		select {
		case err := <-more:
			return err
		case <-bookmark:
			if w.bookmarks {
				if err := w.bookmark(nil); err != nil {
					return err
				}
			}
		}
	}
}

func (w *watcher) bookmark(annotations map[string]string) error {
	return w.send(watch.Event{Type: watch.Bookmark, Object: &Change{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "Change"},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(w.last), Annotations: annotations},
	}})
}

func (w *watcher) send(event watch.Event) error {
	select {
	case w.events <- event:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}
