package apistorage_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// startPausing starts a watch without initial state that may pause.
func startPausing(ctx context.Context, t *testing.T, f *fixture) apistorage.Pausing {
	t.Helper()
	declined := false
	w, err := f.Watch(ctx, "/pods", storage.ListOptions{Recursive: true, SendInitialEvents: &declined, Predicate: storage.Everything})
	harness.Must(t, err)
	pausing := w.(apistorage.Pausing)
	pausing.MayPause()
	t.Cleanup(pausing.End)
	return pausing
}

// await returns when the channel of the watch is closed.
func await(t *testing.T, w apistorage.Pausing) {
	t.Helper()
	select {
	case event, ok := <-w.ResultChan():
		if ok {
			t.Errorf("the watch sent %v", event)
		}
	case <-time.After(time.Minute):
		t.Fatal("the watch neither pauses nor ends")
	}
}

// TestPausesMissNothing creates pods when watches are about to pause, and when they have paused. Each is sent once.
func TestPausesMissNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engines.SQLite)
	pauses := 0
	for i := range 60 {
		w := startPausing(t.Context(), t, f)
		name := fmt.Sprintf("pod-%d", i)
		created := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
			created <- f.Create(t.Context(), "/pods/ns/"+name, pod, nil, 0)
		}()
		got := ""
		for got == "" {
			select {
			case event, ok := <-w.ResultChan():
				if ok {
					got = event.Object.(runtime.CacheableObject).GetObject().(*example.Pod).Name
					break
				}
				w.Stop() // has no effect
				pauses++
				if !w.Resume(nil) {
					t.Fatalf("watch %d ended", i)
				}
			case <-time.After(time.Minute):
				t.Fatalf("watch %d has not sent its pod", i)
			}
		}
		harness.Must(t, <-created)
		if got != name {
			t.Errorf("watch %d sent %s", i, got)
		}
	}
	if pauses == 0 {
		t.Error("no watch has paused")
	}
}

// TestEndsOfPausedWatches ends watches that have paused.
func TestEndsOfPausedWatches(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(t *testing.T, f *fixture) context.Context
	}{
		{"the request ends", func(t *testing.T, _ *fixture) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*time.Millisecond, cancel)
			return ctx
		}},
		{"its time is over", func(t *testing.T, _ *fixture) context.Context {
			return apistorage.WithDeadline(t.Context(), time.Now().Add(500*time.Millisecond))
		}},
		{"the store closes", func(t *testing.T, f *fixture) context.Context {
			closed := make(chan struct{})
			time.AfterFunc(500*time.Millisecond, func() { f.store.Close(); close(closed) })
			t.Cleanup(func() { <-closed }) // before its files are removed
			return t.Context()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, engines.SQLite)
			w := startPausing(test.end(t, f), t, f)
			await(t, w)
			for w.Resume(nil) { // when the store closes, the last turn ends at once
				await(t, w)
				w.Stop()
			}
			w.End()
			if w.Resume(nil) {
				t.Error("the watch goes on after its end")
			}
		})
	}
}
