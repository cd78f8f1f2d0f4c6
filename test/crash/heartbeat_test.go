package crash

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestKillLosesHeartbeatsAlone kills a server in which renewals of a node's Lease wait to be written. They are lost, and nothing else;
// no resourceVersion is handed out twice, and the node goes on as after a failed renewal. A server that stops writes them.
func TestKillLosesHeartbeatsAlone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	server := sqube.Start(t, sqube.Options{Args: []string{"--node-heartbeat-interval=10m"}})
	client, err := kubernetes.NewForConfig(server.Config(t))
	harness.Must(t, err)
	leases, maps := client.CoordinationV1().Leases(corev1.NamespaceNodeLease), client.CoreV1().ConfigMaps("default")
	began, now := time.Now().Truncate(time.Microsecond), 0
	at := func(seconds int) *metav1.MicroTime {
		return &metav1.MicroTime{Time: began.Add(time.Duration(seconds) * time.Second)}
	}
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: coordinationv1.LeaseSpec{RenewTime: at(0)}}, metav1.CreateOptions{})
	harness.Must(t, err)
	renew := func() {
		t.Helper()
		now++
		lease.Spec.RenewTime = at(now)
		lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		harness.Must(t, err)
	}
	renewed := func() int {
		t.Helper()
		got, err := leases.Get(ctx, "node", metav1.GetOptions{})
		harness.Must(t, err)
		return int(got.Spec.RenewTime.Sub(began).Seconds())
	}
	// A read of the database writes them too, and a server that has just started reads much. So the first kill may lose nothing.
	for lost := false; !lost; {
		lease, err = leases.Get(ctx, "node", metav1.GetOptions{})
		harness.Must(t, err)
		_, err = leases.List(ctx, metav1.ListOptions{}) // so the server has them in memory
		harness.Must(t, err)
		renew()
		written := now
		name := fmt.Sprintf("kept-%d", now)
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		harness.Must(t, err)
		renew()
		renew()
		if got := renewed(); got != now {
			t.Errorf("the Lease was renewed at %d, not %d", got, now)
		}
		server.Kill(t)
		server.Start(t)
		_, err = maps.Get(ctx, name, metav1.GetOptions{})
		harness.Must(t, err)
		got := renewed()
		if got < written || got > now {
			t.Fatalf("after the kill, the Lease was renewed at %d; %d had been written with another object", got, written)
		}
		lost = got < now
	}
	next, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "next"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	if version(t, next.ResourceVersion) <= version(t, lease.ResourceVersion) {
		t.Errorf("resourceVersion %s follows %s, which was lost", next.ResourceVersion, lease.ResourceVersion)
	}
	lost, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: lease.ResourceVersion})
	harness.Must(t, err)
	if event := <-lost.ResultChan(); !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) && !apierrors.IsGone(apierrors.FromObject(event.Object)) {
		t.Errorf("a watch from a lost resourceVersion begins with %+v", event)
	}
	lost.Stop()
	lease.Spec.RenewTime = at(now + 1)
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a renewal of a lost version: %v", err)
	}
	lease, err = leases.Get(ctx, "node", metav1.GetOptions{})
	harness.Must(t, err)
	renew()

	server.Stop(t)
	server.Start(t)
	if got := renewed(); got != now {
		t.Errorf("after the end, the Lease was renewed at %d, not %d", got, now)
	}
}

func version(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	harness.Must(t, err)
	return n
}
