package serve

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/test/harness"
)

// TestControllersStepAside simulates a kube-controller-manager that comes and goes, by its Lease alone: while it holds the
// Lease, the controllers in the process stop, except for those that --controllers names.
func TestControllersStepAside(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--controllers=api,root-ca-certificate-publisher-controller"})
	c := controlled{client(t, s.Kubeconfig)}
	c.createNamespace(t, "before")
	c.eventually(t, "a service account in a new namespace", "before", true, true)

	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-controller-manager", Namespace: metav1.NamespaceSystem},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("somebody"), LeaseDurationSeconds: ptr.To[int32](3600)},
	}
	leases := c.CoordinationV1().Leases(metav1.NamespaceSystem)
	update := func(holder string, seconds int32) {
		t.Helper()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, &seconds
		var err error
		if lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if lease, err = leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Logged(t, "the controllers here have stopped", 1)
	c.createNamespace(t, "beside")
	c.eventually(t, "the named controller still creates its object", "beside", false, true)
	// They do not start after a restart either.
	s.Stop(t)
	s = serveAgain(t, s, nil)
	s.Logged(t, "the controllers here have stopped", 1)
	c.createNamespace(t, "restarted")
	c.has(t, "restarted", false, false)
	update("", 1)
	s.Logged(t, "its controllers run here again", 1)
	c.eventually(t, "a service account once the Lease is released", "beside", true, true)

	update("somebody", 3600)
	s.Logged(t, "the controllers here have stopped", 2)
	update("somebody else", 1) // and never again: it was killed
	s.Logged(t, "its controllers run here again", 2)
	c.createNamespace(t, "after")
	c.eventually(t, "a service account once the Lease has expired", "after", true, true)
	s.Stop(t)
}

// TestControllersAreSelected starts an API server without any controllers, as tests of controllers need it.
func TestControllersAreSelected(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--controllers=-*"})
	c := controlled{client(t, s.Kubeconfig)}
	c.createNamespace(t, "alone")
	orphan := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orphan", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "gone"},
	}}}
	maps := c.CoreV1().ConfigMaps("alone")
	if _, err := maps.Create(t.Context(), orphan, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Stop(t)
	// The controllers selected now handle what happened before.
	s = serveAgain(t, s, []string{"--controllers=api,-garbagecollector"})
	c.eventually(t, "a service account", "alone", true, true)
	if _, err := maps.Get(t.Context(), "orphan", metav1.GetOptions{}); err != nil {
		t.Fatalf("a ConfigMap without its owner: %v", err)
	}
	s.Stop(t)
	s = serveAgain(t, s, []string{"--controllers=garbage-collector-controller"})
	harness.Eventually(t, "it is collected", func() bool {
		_, err := maps.Get(t.Context(), "orphan", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	c.createNamespace(t, "collected")
	c.has(t, "collected", false, false)
	s.Stop(t)
}

// controlled is a client of a server with controllers. One of them creates a service account in each namespace, another a
// ConfigMap with the root CA.
type controlled struct{ kubernetes.Interface }

func (c controlled) createNamespace(t *testing.T, name string) {
	t.Helper()
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c controlled) made(t *testing.T, namespace string) (account, ca bool) {
	t.Helper()
	_, err := c.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	_, missing := c.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	return err == nil, missing == nil
}

func (c controlled) has(t *testing.T, namespace string, account, ca bool) {
	t.Helper()
	if gotAccount, gotCA := c.made(t, namespace); gotAccount != account || gotCA != ca {
		t.Errorf("namespace %s: a service account: %t, a root CA: %t", namespace, gotAccount, gotCA)
	}
}

func (c controlled) eventually(t *testing.T, what, namespace string, account, ca bool) {
	t.Helper()
	harness.Eventually(t, what, func() bool {
		gotAccount, gotCA := c.made(t, namespace)
		return gotAccount == account && gotCA == ca
	})
}
