package apistorage_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// A read that takes longer than one database access may, because there is much to decode or the client is slow, uses several
// accesses.
const (
	manyPods = 2500
	slowness = time.Millisecond // per object
)

// createPods returns writes that create n pods.
func createPods(n int) (group []dialect.Write) {
	for i := range n {
		name := fmt.Sprintf("pod-%05d", i)
		group = append(group, dialect.Write{
			Operation: dialect.Create, Resource: "pods", Key: "ns/" + name, Namespace: "ns", Name: name, Labels: "{}", Fields: "{}",
			Value: fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"example.apiserver.k8s.io/v1","metadata":{"name":"%s","namespace":"ns"}}`, name),
		})
	}
	return group
}

// newBusyFixture returns a storage of manyPods pods, with that timeout for database accesses.
func newBusyFixture(t *testing.T, timeout time.Duration) *fixture {
	engine := storetest.OpenEngine(t, engines.SQLite(t))
	if _, err := engine.Commit(t.Context(), createPods(manyPods)); err != nil {
		t.Fatal(err)
	}
	f := newFixtureOn(t, storetest.Start(t, engine, sqlstore.Options{Timeout: timeout}))
	f.Transformer = trimmed{}
	return f
}

// slow is a transformer that sleeps for each object.
type slow struct{ trimmed }

func (slow) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	time.Sleep(slowness)
	return data, false, nil
}

func TestListThatTakesLong(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second // for many objects, not for all
	f := newBusyFixture(t, timeout)
	f.Transformer = slow{}
	list := &example.PodList{}
	began := time.Now()
	harness.Must(t, f.GetList(t.Context(), "/pods", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list))
	if took := time.Since(began); took < timeout || len(list.Items) != manyPods {
		t.Errorf("%d pods in %s", len(list.Items), took)
	}
}

func TestWatchOfASlowClient(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond // for the client to take a few objects
	f := newBusyFixture(t, timeout)
	initial := true
	w, err := f.Watch(t.Context(), "/pods", storage.ListOptions{
		Recursive: true, SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		Predicate: storage.SelectionPredicate{Label: storage.Everything.Label, Field: storage.Everything.Field, AllowWatchBookmarks: true},
	})
	harness.Must(t, err)
	defer w.Stop()
	began := time.Now()
	seen := 0
	for event := range w.ResultChan() {
		if event.Type == watch.Bookmark {
			break
		}
		if event.Type != watch.Added {
			t.Fatalf("after %d pods and %s, the watch sent %v", seen, time.Since(began), event)
		}
		event.Object.(runtime.CacheableObject).GetObject()
		seen++
		time.Sleep(slowness)
	}
	if took := time.Since(began); took < timeout || seen != manyPods {
		t.Errorf("%d pods in %s", seen, took)
	}
}
