package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// Log collects events and lets callers wait for one. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	events  []Event
	err     error
	changed chan struct{} // closed and replaced at every change
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{changed: make(chan struct{})} }

// Add appends an event.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	close(l.changed)
	l.changed = make(chan struct{})
}

// fail ends the log with an error.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	close(l.changed)
	l.changed = make(chan struct{})
}

// Wait returns all events once there is one with the version or a higher one.
func (l *Log) Wait(ctx context.Context, version uint64) ([]Event, error) {
	looked := 0
	for {
		l.mu.Lock()
		events, err, changed := l.events, l.err, l.changed
		l.mu.Unlock()
		for ; looked < len(events); looked++ {
			if events[looked].Version >= version {
				return events, nil
			}
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no event with the resourceVersion %d or a higher one among %d: %w", version, len(events), ctx.Err())
		case <-changed:
		}
	}
}

// Follow watches the kind's objects written by Writers, from now on until ctx ends. If the watch ends earlier, because the
// server does, it resumes from the last version received.
func Follow(ctx context.Context, c dynamic.Interface, kind Kind) (*Log, error) {
	list, err := kind.client(c).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return nil, err
	}
	last, err := Version(list.GetResourceVersion())
	if err != nil {
		return nil, err
	}
	log := NewLog()
	go func() {
		for ctx.Err() == nil {
			if last, err = follow(ctx, c, kind, last, log); err != nil {
				log.fail(fmt.Errorf("watch %s from %d: %w", kind.Resource.Resource, last, err))
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(retryPause):
			}
		}
	}()
	return log, nil
}

// follow runs one watch from a version and returns the last version received. The end of the connection is not an error.
func follow(ctx context.Context, c dynamic.Interface, kind Kind, last uint64, log *Log) (uint64, error) {
	w, err := kind.client(c).Watch(ctx, metav1.ListOptions{LabelSelector: Selector, ResourceVersion: strconv.FormatUint(last, 10)})
	if err != nil {
		if isTransient(err) || ctx.Err() != nil {
			return last, nil
		}
		return last, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			err := apierrors.FromObject(event.Object)
			if isTransient(err) || isBroken(err) {
				return last, nil
			}
			return last, err
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return last, err
		}
		if last, err = Version(object.GetResourceVersion()); err != nil {
			return last, err
		}
		log.Add(Event{event.Type, kind.key(object.GetName()), last})
	}
	return last, nil
}

// isBroken reports whether the client library generated an error event because the connection broke.
func isBroken(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse || cause.Type == "ClientWatchDecoding" {
			return true
		}
	}
	return false
}
