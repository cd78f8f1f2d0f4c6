package replicas

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// patience is how long something may take on a busy machine before it counts as not happening.
const patience = time.Minute

// replica is one of the servers on a database.
type replica struct {
	*sqube.Server
	kubernetes.Interface
}

// start starts three servers on one database, with the same keys.
func start(t *testing.T) []replica {
	t.Helper()
	datastore, key := harness.Postgres(t), newKeyFile(t)
	replicas := make([]replica, 3)
	for i := range replicas {
		replicas[i].Server = sqube.Launch(t, sqube.Options{Datastore: datastore, Args: []string{keyFlag, key}})
	}
	for i := range replicas {
		replicas[i].WaitReady(t)
		replicas[i].Interface = client(t, replicas[i].Config(t))
	}
	return replicas
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": "test"}}}
}

// ours selects what the tests make.
var ours = metav1.ListOptions{LabelSelector: "of=test"}

// eventually waits until f returns true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come about that %s", what)
		}
	}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	replicas := start(t)
	t.Run("a read on any returns what was acknowledged by any other before", func(t *testing.T) { readElsewhere(t, replicas) })
	t.Run("a watch on any sees the writes of all, once and in order", func(t *testing.T) { watchElsewhere(t, replicas) })
	t.Run("a list goes on elsewhere with its continue token", func(t *testing.T) { listMoves(t, replicas) })
	t.Run("a watch goes on elsewhere with its resourceVersion", func(t *testing.T) { watchMoves(t, replicas) })
	t.Run("a token of one is good for all", func(t *testing.T) { tokens(t, replicas) })
	t.Run("the controllers move when their server dies or stops", func(t *testing.T) { controllersMove(t, replicas) })
}

func readElsewhere(t *testing.T, replicas []replica) {
	for i := range 30 {
		writer, reader := replicas[i%3], replicas[(i+1)%3]
		name := fmt.Sprint("read-", i)
		created, err := writer.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := reader.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || got.ResourceVersion != created.ResourceVersion {
			t.Fatalf("get: %v, %v", got, err)
		}
		list, err := reader.CoreV1().ConfigMaps("default").List(t.Context(), ours)
		if err != nil || !slices.ContainsFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == name }) {
			t.Fatalf("list: %v, %v", list, err)
		}
	}
}

func watchElsewhere(t *testing.T, replicas []replica) {
	const writes = 20 // by each replica
	watches := make([]watch.Interface, len(replicas))
	for i, r := range replicas {
		list, err := r.CoreV1().ConfigMaps("default").List(t.Context(), ours)
		if err != nil {
			t.Fatal(err)
		}
		if watches[i], err = r.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: ours.LabelSelector, ResourceVersion: list.ResourceVersion}); err != nil {
			t.Fatal(err)
		}
		defer watches[i].Stop()
	}
	var mu sync.Mutex
	acknowledged := map[string]time.Time{}
	var written []int
	var writers sync.WaitGroup
	for i, r := range replicas {
		writers.Go(func() {
			for n := range writes {
				created, err := r.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprintf("watch-%d-%d", i, n)), metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged[created.ResourceVersion] = time.Now()
				written = append(written, revision(t, created.ResourceVersion))
				mu.Unlock()
			}
		})
	}
	seen := make([][]int, len(replicas))
	var delays []time.Duration
	var watchers sync.WaitGroup
	for i, w := range watches {
		watchers.Go(func() {
			for len(seen[i]) < writes*len(replicas) {
				event, ok := next(t, w)
				if !ok {
					return
				}
				now := time.Now()
				version := event.Object.(*corev1.ConfigMap).ResourceVersion
				seen[i] = append(seen[i], revision(t, version))
				mu.Lock()
				if at, ok := acknowledged[version]; ok {
					delays = append(delays, now.Sub(at))
				} else { // seen before its writer knew
					delays = append(delays, 0)
				}
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	watchers.Wait()
	slices.Sort(written)
	for i := range seen {
		if !slices.Equal(seen[i], written) {
			t.Errorf("server %d shows %v, written were %v", i, seen[i], written)
		}
	}
	slices.Sort(delays)
	if len(delays) > 0 {
		t.Logf("median from an acknowledgement to the event elsewhere: %s", delays[len(delays)/2])
	}
}

func next(t *testing.T, w watch.Interface) (watch.Event, bool) {
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			t.Error("the watch ends")
		}
		return event, ok
	case <-time.After(patience):
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

func listMoves(t *testing.T, replicas []replica) {
	whole, err := replicas[0].CoreV1().ConfigMaps("default").List(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	options := metav1.ListOptions{LabelSelector: ours.LabelSelector, Limit: 7}
	var names []string
	for i := 0; ; i++ {
		r := replicas[i%len(replicas)]
		page, err := r.CoreV1().ConfigMaps("default").List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
		// What changes meanwhile is not in the snapshot.
		if _, err := r.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint("zzz-late-", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for _, item := range whole.Items {
		want = append(want, item.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("in pages %v, at once %v", names, want)
	}
}

func watchMoves(t *testing.T, replicas []replica) {
	list, err := replicas[0].CoreV1().ConfigMaps("default").List(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	const writes = 12
	version := list.ResourceVersion
	var want, got []string
	for i := range writes {
		created, err := replicas[(i+2)%3].CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint("move-", i)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, created.Name)
	}
	for i := range writes / 2 { // two events from each server in turn
		w, err := replicas[i%3].CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: ours.LabelSelector, ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			event, ok := next(t, w)
			if !ok {
				t.FailNow()
			}
			object := event.Object.(*corev1.ConfigMap)
			got, version = append(got, object.Name), object.ResourceVersion
		}
		w.Stop()
	}
	if !slices.Equal(got, want) {
		t.Errorf("seen were %v, written %v", got, want)
	}
}

func tokens(t *testing.T, replicas []replica) {
	eventually(t, "there is a ServiceAccount", func() bool {
		_, err := replicas[0].CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	token := tokenRequest(t, replicas[0])
	for i, r := range replicas {
		if user := whoami(t, r, token); user != "system:serviceaccount:default:default" {
			t.Errorf("server %d takes the token for that of %q", i, user)
		}
	}
}

// controllersMove kills servers until one is left; the garbage collector works after each.
func controllersMove(t *testing.T, replicas []replica) {
	for i := range replicas {
		last := replicas[len(replicas)-1]
		collected(t, last, fmt.Sprint("owner-", i))
		switch i {
		case 0:
			replicas[i].Kill(t)
		case 1:
			replicas[i].Stop(t)
		}
	}
}

// collected deletes an object and waits until what it owns is gone.
func collected(t *testing.T, r replica, name string) {
	t.Helper()
	maps := r.CoreV1().ConfigMaps("default")
	owner, err := maps.Create(t.Context(), configMap(name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := configMap(name + "-owned")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what "+name+" owned is collected", func() bool {
		_, err := maps.Get(t.Context(), owned.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
