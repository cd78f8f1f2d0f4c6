package serve

import (
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/sqube/sqube/test/harness"
)

// TestCoordinatedLeaderElection makes two components candidates for a Lease: the server assigns it to the older one, as in an
// upgrade.
func TestCoordinatedLeaderElection(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{
		"--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true",
		"--coordinated-leadership-lease-duration=7s", "--coordinated-leadership-renew-deadline=5s", "--coordinated-leadership-retry-period=1s",
	})
	c := client(t, s.Kubeconfig)
	for name, version := range map[string]string{"newer": "1.37.0", "older": "1.36.0"} {
		candidate, _, err := leaderelection.NewCandidate(c, "kube-system", name, "component", version, version, coordinationv1.OldestEmulationVersion)
		harness.Must(t, err)
		go candidate.Run(t.Context())
	}
	leases := c.CoordinationV1().Leases("kube-system")
	harness.Retry(t, "the older component gets the Lease", func() error {
		lease, err := leases.Get(t.Context(), "component", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "older" {
			return fmt.Errorf("%+v", lease.Spec)
		}
		return nil
	})
	if own, err := leases.Get(t.Context(), "leader-election-controller", metav1.GetOptions{}); err != nil || *own.Spec.LeaseDurationSeconds != 7 {
		t.Errorf("the Lease of the choosing server: %+v, error %v", own, err)
	}
	s.Stop(t)
}
