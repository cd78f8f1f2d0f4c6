package mirror

import (
	"context"
	"strconv"
	"sync"
	"time"

	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/sqlstore"
)

// stream follows one resource, in a namespace or all ("").
type stream struct {
	*Follower
	resource  kubecopy.Resource
	namespace string

	from   int64     // the resourceVersion from which the next watch goes on, 0 to list first
	since  time.Time // when the last watch ended, or the process before; zero if there was none
	stop   context.CancelFunc
	ended  chan struct{}
	listed func()        // closes tried
	tried  chan struct{} // closed when the first list, if any, was passed on, or has failed
	again  bool          // whether since is of the process before
	warned string        // the last error that was logged

	// For the writer alone:
	stored  sqlstore.Resource
	known   map[string]version // by key
	applied int64              // the resourceVersion up to which everything is written
}

// version is what is stored of an object.
type version struct {
	uid    string
	number int64 // its resourceVersion there
}

type kind int

const (
	changed  kind = iota // an object was added, modified or deleted
	present              // an object is in a list
	listed               // the list ended; what was not in it is deleted
	bookmark             // the watch has come so far
	missed               // a gap
	gone                 // the resource is no longer there
)

// event is what a stream passes to the writer.
type event struct {
	*stream
	kind    kind
	object  *kubecopy.Object
	deleted bool
	version int64           // of a list or a bookmark
	keys    map[string]bool // in a list
	gap     *Gap
	arrived time.Time
}

// at is the resourceVersion of an event.
func (e *event) at() int64 {
	if e.object != nil {
		return e.object.ResourceVersion
	}
	return e.version
}

func newStream(f *Follower, r kubecopy.Resource, namespace string, from start) *stream {
	return &stream{
		Follower: f, resource: r, namespace: namespace, from: from.position, since: from.since, again: true,
		stored: storedAs(r), known: from.known, applied: from.position,
	}
}

// in returns the stream of the same resource in another version, after it has ended.
func (s *stream) in(r kubecopy.Resource) *stream {
	next := *s
	next.resource = r
	return &next
}

func (s *stream) start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	s.listed = sync.OnceFunc(func() { close(s.tried) })
	s.ended, s.tried = make(chan struct{}), make(chan struct{})
	s.following.Go(func() {
		defer close(s.ended)
		s.follow(ctx)
	})
}

func (s *stream) name() string { return s.resource.In(s.namespace) }

// follow lists and watches until ctx ends.
func (s *stream) follow(ctx context.Context) {
	for pause := retryFirst; ctx.Err() == nil; {
		began := time.Now()
		err := s.once(ctx)
		if time.Since(began) > retryLast {
			pause = retryFirst
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil: // the server ends watches after a while
			s.warned = ""
			continue
		case kubecopy.Expired(err) && s.from != 0:
			s.from = 0 // list again
		case kubecopy.Unreadable(err):
			s.warn("a resource is not followed", err)
			if !sleep(ctx, refusedRetry) {
				return
			}
		default:
			s.warn("following a resource was interrupted; trying again", err)
			if !sleep(ctx, pause) {
				return
			}
			pause = min(2*pause, retryLast)
		}
	}
}

// warn logs an error, unless it is the one that was logged last.
func (s *stream) warn(message string, err error) {
	if s.warned != err.Error() {
		s.warned = err.Error()
		s.log.Warn(message, "resource", s.name(), "error", err)
	}
}

// once lists, if that is necessary, and watches until the server ends the watch.
func (s *stream) once(ctx context.Context) error {
	var err error
	if s.from == 0 {
		err = s.list(ctx)
	}
	s.listed()
	if err != nil {
		return err
	}
	opened := false
	err = s.cluster.Watch(ctx, s.resource, s.namespace, strconv.FormatInt(s.from, 10), func(at time.Time) {
		opened = true
		if !s.since.IsZero() && (s.again || at.Sub(s.since) > late) { // what happened meanwhile comes late
			_ = s.send(ctx, event{stream: s, kind: missed, gap: newGap(s.name(), s.since, at, false)}) // else ctx has ended
		}
	}, func(e kubecopy.Event) error {
		if e.Type == apiwatch.Bookmark {
			s.from = max(s.from, e.Object.ResourceVersion)
			return s.send(ctx, event{stream: s, kind: bookmark, version: e.Object.ResourceVersion})
		}
		if s.resource.Changes() {
			s.changed()
		}
		err := s.send(ctx, event{stream: s, kind: changed, object: e.Object, deleted: e.Type == apiwatch.Deleted, arrived: time.Now()})
		if err == nil {
			s.from = max(s.from, e.Object.ResourceVersion)
		}
		return err
	})
	if opened {
		s.since, s.again = time.Now(), false
	}
	return err
}

// late is how long a watch can be interrupted without a mark in history.
const late = 5 * time.Second

// list passes on what there is. After a gap, that comes first.
func (s *stream) list(ctx context.Context) error {
	began, keys := time.Now(), map[string]bool{}
	if !s.since.IsZero() {
		if err := s.lose(ctx, s, newGap(s.name(), s.since, began, true)); err != nil {
			return err
		}
		s.since = began // what is lost from now on is another gap
	}
	text, err := s.cluster.List(ctx, s.resource, s.namespace, func(o *kubecopy.Object) error {
		keys[o.Object] = true
		return s.send(ctx, event{stream: s, kind: present, object: o, arrived: began})
	})
	if err != nil {
		return err
	}
	from, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		err = s.send(ctx, event{stream: s, kind: listed, version: from, keys: keys, arrived: began})
	}
	if err == nil {
		s.from, s.since = from, time.Time{}
	}
	return err
}
