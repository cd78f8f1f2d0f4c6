package apistorage_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestWatchFromNow starts watches without initial state. They send everything created after the call, however late their
// goroutines run.
func TestWatchFromNow(t *testing.T) {
	f := newFixture(t, engines.SQLite)
	declined := false
	for i := range 50 {
		w, err := f.Watch(t.Context(), "/pods", storage.ListOptions{Recursive: true, SendInitialEvents: &declined, Predicate: storage.Everything})
		harness.Must(t, err)
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("pod-%d", i)}}
		harness.Must(t, f.Create(t.Context(), "/pods/ns/"+pod.Name, pod, nil, 0))
		select {
		case event := <-w.ResultChan():
			if got := event.Object.(runtime.CacheableObject).GetObject().(*example.Pod).Name; event.Type != watch.Added || got != pod.Name {
				t.Errorf("watch %d began with %s of %s", i, event.Type, got)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("watch %d missed an object created after it began", i)
		}
		w.Stop()
	}
}
