package workload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/robustness/history"
)

// maxStay is the longest time that a leaving watcher stays: sometimes long enough to receive a bookmark. maxAbsence is the
// longest time until it watches again.
const (
	maxStay    = 2 * time.Second
	maxAbsence = 500 * time.Millisecond
)

// watcher follows a collection with one watch after another.
type watcher struct {
	*client
	in    collection
	group string // selects; "" for all
	// leaves is true if it leaves watches at random. Otherwise it stays until the server ends them.
	leaves bool
	// initial is true if after a 410, and at random, it starts over with initial events.
	initial bool
	at      uint64 // the revision up to which it has seen everything, 0 if it must start over
}

// follow watches until it has seen everything up to the revision from the channel, or ctx is done.
func (w *watcher) follow(ctx context.Context, until <-chan uint64) {
	var target uint64
	for ctx.Err() == nil && (target == 0 || w.at < target) {
		err := w.start()
		if err == nil {
			err = w.watch(ctx, until, &target)
		}
		if errors.Is(err, context.Canceled) {
			w.wait(ctx, 0, maxAbsence)
		} else {
			w.rest(ctx, err != nil)
		}
	}
}

// start lists if the watcher must start over, unless the watch sends initial events.
func (w *watcher) start() error {
	if w.initial && w.chance(20) {
		w.at = 0
	}
	if w.at != 0 || w.initial {
		return nil
	}
	l := &history.List{}
	if err := w.list(w.in, l, 0); err != nil {
		return err
	}
	w.at = l.Version()
	return nil
}

// watch runs one watch. It receives the target from the channel, and ends when it has reached it.
func (w *watcher) watch(ctx context.Context, until <-chan uint64, target *uint64) (err error) {
	r := &history.Watch{Client: w.id, Server: w.anywhere(), Resource: w.in.resource, Group: w.group, From: w.at, Initial: w.at == 0, Call: w.recorder.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.leaves {
		leave := time.AfterFunc(time.Duration(w.random.Int64N(int64(maxStay))), cancel)
		defer leave.Stop()
	}
	response, err := w.open(ctx, r.Server, http.MethodGet, w.in.path+"?"+w.query(r).Encode(), "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		return w.refused(r, errors.Join(newRefusal(response.StatusCode, body), err))
	}
	defer func() {
		if err != nil {
			r.End = err.Error()
		}
		w.recorder.Watch(r)
	}()
	events := make(chan history.Event)
	ended := make(chan error, 1)
	go func() { ended <- w.decode(ctx, response.Body, events) }()
	for {
		select {
		case *target = <-until:
			until = nil
		case e := <-events:
			r.Events = append(r.Events, e)
			if !r.Initial || e.EndsInitial || w.at != 0 {
				w.at = max(w.at, e.Object.Version)
			}
		case err := <-ended:
			return w.refused(r, err)
		}
		if *target != 0 && w.at >= *target {
			r.End = "reached the end"
			return nil
		}
	}
}

func (w *watcher) query(r *history.Watch) url.Values {
	query := url.Values{
		"watch":               {"true"},
		"allowWatchBookmarks": {"true"},
		// The last bookmark comes two seconds before the end.
		"timeoutSeconds": {strconv.Itoa(3 + w.random.IntN(5))},
	}
	if r.Group != "" {
		query.Set("labelSelector", groupLabel+"="+r.Group)
	}
	if r.Initial {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", strconv.FormatUint(r.From, 10))
	}
	return query
}

// refused makes the watcher start over if the server has compacted its revision.
func (w *watcher) refused(r *history.Watch, err error) error {
	if isGone(err) {
		w.at = 0
	}
	var refused *refusal
	if errors.As(err, &refused) && refused.undeserved() {
		w.refusals(fmt.Errorf("watch of %s by client %d at server %d, %s: %w", r.Resource, w.id, r.Server, r.Call, err))
	}
	return err
}

// decode reads events until the stream ends, which is not an error, breaks, or has an error event, returned as a *refusal.
func (w *watcher) decode(ctx context.Context, stream io.Reader, events chan<- history.Event) error {
	for decoder := json.NewDecoder(bufio.NewReader(stream)); ; {
		var raw struct {
			Type   history.EventType
			Object json.RawMessage
		}
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if raw.Type == "ERROR" {
			refused := newRefusal(0, raw.Object)
			refused.code = int(refused.status.Code)
			return refused
		}
		var o object
		if err := json.Unmarshal(raw.Object, &o); err != nil {
			return err
		}
		recorded, err := o.recorded()
		if err != nil {
			return err
		}
		e := history.Event{
			At: w.recorder.Now(), Type: raw.Type, Object: recorded,
			EndsInitial: o.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true",
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
