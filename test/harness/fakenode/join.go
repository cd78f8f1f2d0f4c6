package fakenode

import (
	"cmp"
	"context"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
)

// MissingImage is an image that can't be pulled: Pods with it stay pending.
const MissingImage = "fakenode/missing"

// leaseInterval is how often nodes of tests renew their Leases. A kubelet does so every 10 s; a shorter interval lets tests shorten
// --node-monitor-grace-period.
const leaseInterval = 2 * time.Second

// Join simulates nodes until the test ends. By default they are small: one CPU and 1Gi of memory.
func Join(t testing.TB, config *rest.Config, o simnodes.Options) *simnodes.Nodes {
	t.Helper()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	maps.Copy(room, o.Capacity)
	o.Capacity, o.LeaseInterval = room, cmp.Or(o.LeaseInterval, leaseInterval)
	o.Failed = func(err error) { t.Log(err) }
	o.Scripts = append(o.Scripts, simnodes.Script{
		Match: func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == MissingImage },
		Runs:  []simnodes.Run{{simnodes.FailPull("not found")}},
	})
	nodes, err := simnodes.Join(context.Background(), config, o)
	harness.Must(t, err)
	t.Cleanup(nodes.Stop)
	return nodes
}
