package replicas

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sqube/sqube/test/harness"
)

// watchElsewhere watches all servers while clients write to all of them: each watch shows all writes in order.
func watchElsewhere(t *testing.T, replicas []replica) {
	const writes = 20 // by each replica
	from := newest(t, replicas[0])
	var mu sync.Mutex
	var written []int
	var writers, watchers sync.WaitGroup
	seen := make([][]int, len(replicas))
	for i, r := range replicas {
		w := watchFrom(t, r, from)
		defer w.Stop()
		watchers.Go(func() {
			for len(seen[i]) < writes*len(replicas) {
				event, ok := next(t, w)
				if !ok {
					return
				}
				seen[i] = append(seen[i], revision(t, event.Object.(*corev1.ConfigMap).ResourceVersion))
			}
		})
		writers.Go(func() {
			for n := range writes {
				created, err := r.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprintf("watch-%d-%d", i, n)), metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				written = append(written, revision(t, created.ResourceVersion))
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	watchers.Wait()
	slices.Sort(written)
	for i, revisions := range seen {
		if !slices.Equal(revisions, written) {
			t.Errorf("server %d shows %v, but %v were written", i, revisions, written)
		}
	}
}

// watchMoves follows all changes with watches that end after a few events and continue on another server, while clients of all
// servers create, update and delete. It compares what it has seen with one uninterrupted watch, and with what was written.
func watchMoves(t *testing.T, replicas []replica) {
	const rounds = 15 // of each of two writers at a server, three changes each
	from := newest(t, replicas[0])
	total := 0
	var writers sync.WaitGroup
	for c := range 2 * len(replicas) {
		total += 3 * rounds
		writers.Go(func() {
			for i := range rounds {
				if err := change(t, replicas[c%len(replicas)], fmt.Sprintf("move-%d-%d", c, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var moving []string
	version := from
	for i := 0; len(moving) < total; i++ {
		w := watchFrom(t, replicas[i%len(replicas)], version)
		for range min(1+i%7, total-len(moving)) {
			event, ok := next(t, w)
			if !ok {
				t.FailNow()
			}
			moving = append(moving, describe(event))
			version = event.Object.(*corev1.ConfigMap).ResourceVersion
		}
		w.Stop()
	}
	writers.Wait()
	staying := watchFrom(t, replicas[1], from)
	defer staying.Stop()
	for i, got := range moving {
		event, ok := next(t, staying)
		if !ok {
			t.FailNow()
		}
		if want := describe(event); got != want {
			t.Fatalf("event %d of the moving watches is %s, want %s", i, got, want)
		}
	}
}

// change creates, updates and deletes an object.
func change(t *testing.T, r replica, name string) error {
	maps := r.CoreV1().ConfigMaps("default")
	object, err := maps.Create(t.Context(), configMap(name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	object.Data = map[string]string{"a": "b"}
	if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return maps.Delete(t.Context(), name, metav1.DeleteOptions{})
}

func describe(event watch.Event) string {
	object := event.Object.(*corev1.ConfigMap)
	return fmt.Sprintf("%s %s@%s", event.Type, object.Name, object.ResourceVersion)
}

// newest returns the revision of a list from a server.
func newest(t *testing.T, r replica) string {
	t.Helper()
	list, err := r.CoreV1().ConfigMaps("default").List(t.Context(), ours)
	harness.Must(t, err)
	return list.ResourceVersion
}

func watchFrom(t *testing.T, r replica, version string) watch.Interface {
	t.Helper()
	w, err := r.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: ours.LabelSelector, ResourceVersion: version})
	harness.Must(t, err)
	return w
}

func next(t *testing.T, w watch.Interface) (watch.Event, bool) {
	select {
	case event, ok := <-w.ResultChan():
		if _, object := event.Object.(*corev1.ConfigMap); !ok || !object {
			t.Errorf("the watch ends with %v", event)
			return event, false
		}
		return event, ok
	case <-time.After(harness.Patience):
		t.Error("the watch shows nothing")
		return watch.Event{}, false
	}
}

func revision(t *testing.T, version string) int {
	n, err := strconv.Atoi(version)
	if err != nil {
		t.Error(err)
	}
	return n
}
