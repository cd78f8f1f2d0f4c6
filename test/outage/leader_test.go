package outage

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestLeaderFallsSilent takes the leader of two control planes away without ending it: its process is stopped, and then the other
// one's packets to Postgres are lost. The other server leads, and sees which nodes have fallen silent. The one that was silent goes on
// without a restart: its watches miss nothing, what it has acknowledged is stored, and a node that is alive never looks dead.
func TestLeaderFallsSilent(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	dsn, keys := harness.Postgres(t), sqube.KeyFile(t)
	var proxies [2]*faults.Proxy
	var servers [2]*cluster
	for i := range servers {
		proxies[i] = faults.NewProxy(t, harness.ParseDSN(t, dsn).Host)
		servers[i] = serve(t, through(t, dsn, proxies[i].Addr()), "--datastore-timeout", timeout.String(), "--pki-encryption-key-file", keys,
			"--control-plane", "--node-monitor-grace-period=10s", "--node-monitor-period=1s")
		if i == 0 {
			harness.Eventually(t, "the first server leads", func() bool { return servers[0].leader(t) != "" })
		}
	}
	for i, fault := range []struct {
		name          string
		lose, recover func() error
		answers       bool
	}{
		{"its process is stopped",
			func() error { return servers[0].Signal(syscall.SIGSTOP) }, func() error { return servers[0].Signal(syscall.SIGCONT) }, false},
		{"its packets to Postgres are lost",
			func() error { proxies[1].Drop(); return nil }, func() error { proxies[1].Resume(); return nil }, true},
	} {
		t.Run(fault.name, func(t *testing.T) {
			silent, other := servers[i], servers[1-i]
			alive, dead := fmt.Sprint("alive-", i), fmt.Sprint("dead-", i)
			nodes := fakenode.Join(t, other.Config(t), simnodes.Options{Names: []string{alive, dead}})
			defer nodes.Stop()
			ready := other.readiness(t)
			led := other.leader(t)
			w := silent.watch(t)
			writing := silent.keepWriting(t, fmt.Sprint("written-", i))
			writing.reach(t, 10)

			harness.Must(t, fault.lose())
			nodes.Silence(dead)
			other.creates(t, fmt.Sprint("meanwhile-", i))
			harness.Eventually(t, "the other server leads", func() bool { return other.leader(t) != led })
			if fault.answers {
				configMaps := "/api/v1/namespaces/default/configmaps"
				lost(t, silent, request{method: http.MethodGet, path: configMaps}, timeout)
				lost(t, silent, request{method: http.MethodPost, path: configMaps, body: `{"metadata":{"generateName":"never-"}}`}, timeout)
			}
			harness.Eventually(t, "the silent node is not ready", func() bool { return ready.now(dead) == corev1.ConditionUnknown })

			before := writing.count()
			harness.Must(t, fault.recover())
			silent.WaitReady(t)
			writing.reach(t, before+10)
			acknowledged := writing.stop()
			silent.Logged(t, "the controllers have stopped here: this server has lost its Lease", 1)
			if is, want := silent.leader(t), other.leader(t); is != want || is == led {
				t.Errorf("the server that was silent takes %q for the leader, the other %q; before, it was %q", is, want, led)
			}
			silent.creates(t, fmt.Sprint("after-", i))
			missedNothing(t, other, w, acknowledged, fmt.Sprint("meanwhile-", i), fmt.Sprint("after-", i))
			nodes.Return(dead)
			harness.Eventually(t, "the node is ready again", func() bool { return ready.now(dead) == corev1.ConditionTrue })
			if was := ready.all(alive); len(was) != 1 {
				t.Errorf("a node that was alive had the conditions %v", was)
			}
		})
	}
	for _, s := range servers {
		s.Stop(t)
	}
}

// missedNothing reads a watch until it brings the last of the names. What was acknowledged must be stored, and the watch have brought it
// and all of the names, once.
func missedNothing(t *testing.T, c *cluster, w *watching, acknowledged []*corev1.ConfigMap, names ...string) {
	t.Helper()
	seen := map[string]bool{}
	for last := ""; last != "ADDED "+names[len(names)-1]; {
		event, err := w.next()
		if err != nil || seen[event] {
			t.Fatalf("the watch returned %q, %v, after %d events", event, err, len(seen))
		}
		seen[event], last = true, event
	}
	list, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	stored := map[string]string{}
	for _, object := range list.Items {
		stored[object.Name] = object.ResourceVersion
	}
	for _, object := range acknowledged {
		if stored[object.Name] != object.ResourceVersion {
			t.Errorf("%s was acknowledged as %s, but is %q", object.Name, object.ResourceVersion, stored[object.Name])
		}
		names = append(names, object.Name)
	}
	for _, name := range names {
		if !seen["ADDED "+name] {
			t.Errorf("the watch missed %s", name)
		}
	}
}

// leader returns who holds the Lease of the controllers; "" if nobody does.
func (c *cluster) leader(t *testing.T) string {
	t.Helper()
	lease, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "sqube-controllers", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// written is a client that creates ConfigMaps in a loop.
type written struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu           sync.Mutex
	acknowledged []*corev1.ConfigMap
}

func (c *cluster) keepWriting(t *testing.T, prefix string) *written {
	w := &written{}
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	w.done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if created, err := c.CoreV1().ConfigMaps("default").Create(ctx, configMap(fmt.Sprintf("%s-%d", prefix, n)), metav1.CreateOptions{}); err == nil {
				w.mu.Lock()
				w.acknowledged = append(w.acknowledged, created)
				w.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *written) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledged)
}

// reach waits until so many writes are acknowledged.
func (w *written) reach(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d writes are acknowledged", n), func() bool { return w.count() >= n })
}

// stop returns what was acknowledged.
func (w *written) stop() []*corev1.ConfigMap {
	w.cancel()
	w.done.Wait()
	return w.acknowledged
}

// readiness has each state of all nodes' condition Ready.
type readiness struct {
	mu     sync.Mutex
	states map[string][]corev1.ConditionStatus
}

// readiness begins to watch the nodes.
func (c *cluster) readiness(t *testing.T) *readiness {
	t.Helper()
	r := &readiness{states: map[string][]corev1.ConditionStatus{}}
	see := func(object any) {
		node := object.(*corev1.Node)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, condition := range node.Status.Conditions {
			states := r.states[node.Name]
			if condition.Type == corev1.NodeReady && (len(states) == 0 || states[len(states)-1] != condition.Status) {
				r.states[node.Name] = append(states, condition.Status)
			}
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, now any) { see(now) }},
	})
	go informer.Run(t.Context().Done())
	cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced)
	return r
}

func (r *readiness) all(node string) []corev1.ConditionStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[node]
}

func (r *readiness) now(node string) corev1.ConditionStatus {
	if states := r.all(node); len(states) > 0 {
		return states[len(states)-1]
	}
	return ""
}
