package bootstrap

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/sqube/sqube/test/harness"
)

// TestAddressLeasesDetectLiveServersByChange renews the Leases of two servers whose clocks differ by a day, and then only one of them.
func TestAddressLeasesDetectLiveServersByChange(t *testing.T) {
	client := fake.NewClientset()
	const duration = 30 * time.Second
	now := time.Now()
	here := newAddressLeases(client, duration, func() time.Time { return now })
	there := newAddressLeases(client, duration, func() time.Time { return now.Add(-24 * time.Hour) })

	expect := func(when string, want ...string) {
		t.Helper()
		got, err := here.ListLeases()
		harness.Must(t, err)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: addresses %v, want %v", when, got, want)
		}
	}
	renew := func(leases *addressLeases, address string) {
		t.Helper()
		harness.Must(t, leases.UpdateLease(address))
	}

	expect("at first")
	renew(here, "10.0.0.1")
	renew(there, "10.0.0.2")
	renew(there, "2001:db8::2")
	expect("both alive", "10.0.0.1", "10.0.0.2", "2001:db8::2")

	// The fake client does not count resource versions; a Lease that is not renewed keeps the same one.
	now = now.Add(2 * duration)
	expect("after an outage of the database", "10.0.0.1", "10.0.0.2", "2001:db8::2")
	for range renewals {
		now = now.Add(duration / renewals)
		expect("within the duration", "10.0.0.1", "10.0.0.2", "2001:db8::2")
	}
	now = now.Add(time.Second)
	here.seen[addressLeaseName("10.0.0.1")] = sighting{since: now}
	expect("after the others stopped", "10.0.0.1")
	left, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if len(left.Items) != 1 {
		t.Fatalf("%d leases left, want 1", len(left.Items))
	}

	renew(there, "10.0.0.2")
	expect("one is back", "10.0.0.1", "10.0.0.2")
	harness.Must(t, there.RemoveLease("10.0.0.2"))
	if err := there.RemoveLease("10.0.0.2"); !storage.IsNotFound(err) {
		t.Fatalf("removing twice: %v, want not found", err)
	}
	expect("it has left", "10.0.0.1")
}

// TestSoleServerReplacesForeignAddresses starts from the Endpoints that a server with another address left behind.
func TestSoleServerReplacesForeignAddresses(t *testing.T) {
	//lint:ignore SA1019 kube-apiserver publishes Endpoints as well as EndpointSlices
	client := fake.NewClientset(&corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
		//lint:ignore SA1019 as above
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.0.0.9"}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: 6443, Protocol: corev1.ProtocolTCP}},
		}},
	})
	address := []byte{10, 0, 0, 1}
	ports := []corev1.EndpointPort{{Name: "https", Port: 6443, Protocol: corev1.ProtocolTCP}}
	reconciler := endpointReconciler(client, Endpoint{Address: address, Port: 6443})

	if err := reconciler.RemoveEndpoints("kubernetes", address, ports); !storage.IsNotFound(err) {
		t.Fatalf("removing an address that was not set: %v, want not found", err)
	}
	harness.Must(t, reconciler.ReconcileEndpoints("kubernetes", address, ports, true))
	endpoints, err := client.CoreV1().Endpoints(metav1.NamespaceDefault).Get(t.Context(), "kubernetes", metav1.GetOptions{})
	harness.Must(t, err)
	if len(endpoints.Subsets) != 1 || len(endpoints.Subsets[0].Addresses) != 1 || endpoints.Subsets[0].Addresses[0].IP != "10.0.0.1" {
		t.Fatalf("endpoints %+v, want 10.0.0.1 alone", endpoints.Subsets)
	}
	slices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if len(slices.Items) != 1 || slices.Items[0].Endpoints[0].Addresses[0] != "10.0.0.1" {
		t.Fatalf("endpoint slices %+v, want one with 10.0.0.1", slices.Items)
	}
}

// TestServiceCIDRCreatedTwice checks that upstream's controller gets the ranges to compare if the object exists already.
func TestServiceCIDRCreatedTwice(t *testing.T) {
	ranges := rangeClient{fake.NewClientset()}.NetworkingV1().ServiceCIDRs()
	wanted := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}},
	}
	if _, err := ranges.Create(t.Context(), wanted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	present, err := ranges.Create(t.Context(), wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) || len(present.Spec.CIDRs) != 1 {
		t.Errorf("the second creation returned %+v, %v", present, err)
	}
}
