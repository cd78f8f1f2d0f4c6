package fakenode

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// testInterval is how often nodes of tests renew their Leases and check their Nodes. A kubelet does so every 10 s; a shorter
// interval lets tests shorten --node-monitor-grace-period.
const testInterval = 2 * time.Second

// Joined is a node of a test.
type Joined struct {
	node *Node
	t    testing.TB

	mu   sync.Mutex
	stop func() // stops the kubelet and waits for its end; nil while the node is silent
}

// Join adds a Node that is ready and runs the Pods bound to it, until the test ends.
func Join(t testing.TB, c kubernetes.Interface, o Options) *Joined {
	t.Helper()
	o.LeaseInterval, o.StatusInterval = cmp.Or(o.LeaseInterval, testInterval), cmp.Or(o.StatusInterval, testInterval)
	o.Failed = func(err error) { t.Log(err) }
	j := &Joined{node: New(c, o), t: t}
	if err := j.node.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Silence)
	j.Return()
	return j
}

// Silence stops the kubelet abruptly, as when the machine loses power.
func (j *Joined) Silence() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stop != nil {
		j.stop()
		j.stop = nil
	}
}

// Return restarts the kubelet of a silent node.
func (j *Joined) Return() {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stop != nil {
		return
	}
	j.node.reported = time.Time{} // a kubelet that starts reports at once
	if err := j.node.trySyncStatus(j.t.Context(), false); err != nil {
		j.t.Fatal(err)
	}
	j.stop = background(j.node.Run)
}

// JoinPods runs the Pods bound to an existing node, like its kubelet, until the test ends.
func JoinPods(t testing.TB, c kubernetes.Interface, node string) {
	t.Helper()
	t.Cleanup(background(func(ctx context.Context) {
		RunPods(ctx, c, Options{Name: node, Failed: func(err error) { t.Log(err) }})
	}))
}

// background calls run in the background. stop ends it and waits for its end.
func background(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// ReportStatus reports the status of a Node, while controllers change the rest of it.
func ReportStatus(t testing.TB, c kubernetes.Interface, name string, status corev1.NodeStatus) {
	t.Helper()
	if err := patchStatus(t.Context(), c, name, status); err != nil {
		t.Fatal(err)
	}
}
