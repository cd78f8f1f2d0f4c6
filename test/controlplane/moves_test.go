package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestMoves runs two servers on one database: the control plane is on one of them, and moves to the other when that dies.
func TestMoves(t *testing.T) {
	t.Parallel()
	datastore := harness.Postgres(t)
	first := sqube.Start(t, sqube.Options{Datastore: datastore, Args: append(sqube.RightsSuffice(t), "--control-plane")})
	c := client(t, first)
	holder := func(c kubernetes.Interface) string {
		lease, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "sqube-controllers", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	harness.Eventually(t, "the first server leads", func() bool { return holder(c) != "" })
	leader := holder(c)
	data := t.TempDir()
	harness.Must(t, os.CopyFS(filepath.Join(data, "pki"), os.DirFS(filepath.Join(filepath.Dir(first.Kubeconfig), "pki"))))
	second := sqube.Start(t, sqube.Options{Datastore: datastore, DataDir: data, Args: append(sqube.RightsSuffice(t), "--control-plane")})
	c = client(t, second)
	fakenode.Join(t, second.Config(t), simnodes.Options{Names: []string{"board"}})
	deploy(t, c, "before", 2)
	if holder(c) != leader {
		t.Fatal("the second server leads although the first one is alive")
	}
	first.Kill(t)
	deploy(t, c, "after", 2)
	if holder(c) == leader {
		t.Error("the killed server still leads")
	}
	second.Stop(t)
}

// TestStepsAside starts and stops upstream's programs, represented by their Leases. The in-process ones stop while these run,
// and start again afterwards in the same process.
func TestStepsAside(t *testing.T) {
	t.Parallel()
	s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: append(sqube.RightsSuffice(t), "--control-plane")})
	c := client(t, s)
	fakenode.Join(t, s.Config(t), simnodes.Options{Names: []string{"board"}})
	deploy(t, c, "before", 1)
	for _, program := range []string{"kube-controller-manager", "kube-scheduler"} {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: program, Namespace: metav1.NamespaceSystem},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("somebody"), LeaseDurationSeconds: ptr.To[int32](3)},
		}
		if _, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.Logged(t, "the controllers here have stopped", 1)
	s.Logged(t, "the scheduler here has stopped", 1)
	s.Logged(t, "its controllers run here again", 1)
	s.Logged(t, "the scheduler here runs again", 1)
	deploy(t, c, "again", 2)
	s.Stop(t)
}

// TestLosesTheLease takes the Lease from the only server: it stops the control plane but keeps serving, and starts it again
// when the Lease has expired.
func TestLosesTheLease(t *testing.T) {
	t.Parallel()
	s := sqube.Start(t, sqube.Options{Datastore: harness.Postgres(t), Args: append(sqube.RightsSuffice(t), "--control-plane")})
	c := client(t, s)
	fakenode.Join(t, s.Config(t), simnodes.Options{Names: []string{"board"}})
	deploy(t, c, "before", 1)
	leases := c.CoordinationV1().Leases(metav1.NamespaceSystem)
	harness.Eventually(t, "another holder has the Lease", func() bool {
		lease, err := leases.Get(t.Context(), "sqube-controllers", metav1.GetOptions{})
		harness.Must(t, err)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("somebody"), ptr.To[int32](8)
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
	s.Logged(t, "the controllers have stopped here: this server has lost its Lease", 1)
	deploy(t, c, "after", 2)
	s.Stop(t)
}
