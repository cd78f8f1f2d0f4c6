package apistorage

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// bookmarkEvery is the pause between bookmarks. The last one is sent bookmarkBefore the end of a watch, so that the client
	// resumes from there (KEP-956).
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	// progressEvery is the pause for in-process clients that ask for progress.
	progressEvery = 5 * time.Second
	// bookmarkRetry is the pause before a bookmark that was due is retried.
	bookmarkRetry = 10 * time.Millisecond
)

type bookmarksKey struct{}

// WithBookmarkInterval sets the pause between the bookmarks of watches with this context.
func WithBookmarkInterval(ctx context.Context, pause time.Duration) context.Context {
	return context.WithValue(ctx, bookmarksKey{}, pause)
}

// progress sends a bookmark, or returns false while changes are waiting to be sent.
func (w *watcher) progress() (bool, error) {
	revision, current := w.sub.Progress()
	if !current {
		return false, nil
	}
	if revision < w.from {
		return true, nil // the client is ahead of the store
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

// untilBookmark returns the time until the next bookmark. It varies, so that watches that began together do not send their
// bookmarks together.
func (w *watcher) untilBookmark() time.Duration {
	if !w.opts.Predicate.AllowWatchBookmarks && !w.opts.ProgressNotify {
		return math.MaxInt64
	}
	pause := bookmarkEvery + rand.N(bookmarkEvery/4)
	if w.opts.ProgressNotify {
		pause = progressEvery
	}
	if seldom, ok := w.ctx.Value(bookmarksKey{}).(time.Duration); ok {
		pause = seldom
	}
	if !w.deadline.IsZero() {
		if last := time.Until(w.deadline) - bookmarkBefore; last > 0 {
			pause = min(pause, last)
		}
	}
	return pause
}
