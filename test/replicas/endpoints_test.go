package replicas

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestEndpoints follows what servers publish about themselves: the endpoints of the Service kubernetes, and their Leases.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	datastore, key := harness.Postgres(t), sqube.KeyFile(t)
	port, err := harness.FreePort()
	harness.Must(t, err)
	address := func(i int) string { return fmt.Sprint("192.0.2.", i) } // TEST-NET-1: never contacted
	more := map[int][]string{
		0: {"--shutdown-delay-duration=1h"},
		3: {"--endpoint-reconciler-type=none"},
	}
	replicas := make([]replica, 4)
	for i := range replicas {
		replicas[i].Server = sqube.Launch(t, sqube.Options{
			Datastore: datastore, Address: fmt.Sprint("127.0.0.", i+1), Port: port,
			Args: append([]string{keyFlag, key, "--advertise-address", address(i)}, more[i]...),
		})
	}
	for i := range replicas {
		replicas[i].WaitReady(t)
		replicas[i].Interface = client(t, replicas[i].Config(t))
	}
	// published reports whether a server publishes the addresses of exactly these.
	published := func(r replica, want ...int) bool {
		addresses := endpoints(t, r, port)
		if slices.Contains(addresses, address(3)) {
			t.Errorf("the address of a server with --endpoint-reconciler-type=none is published: %v", addresses)
		}
		expected := []string{}
		for _, i := range want {
			expected = append(expected, address(i))
		}
		return slices.Equal(addresses, expected)
	}
	last := replicas[2]
	harness.Eventually(t, "all are published", func() bool { return published(last, 0, 1, 2) })
	var before []string
	harness.Eventually(t, "each has an identity Lease", func() bool { // made a moment after the server is ready
		before = identities(t, last)
		return len(before) == len(replicas)
	})

	// SIGTERM: server 0 withdraws its address, but keeps serving for an hour.
	harness.Must(t, syscall.Kill(replicas[0].Pid(), syscall.SIGTERM))
	harness.Eventually(t, "a stopping server is withdrawn", func() bool { return published(last, 1, 2) && len(identities(t, last)) == len(before)-1 })
	if err := get(t, replicas[0], "/readyz"); err == nil {
		t.Error("a stopping server reports that it is ready")
	}
	if !published(replicas[0], 1, 2) {
		t.Error("a stopping server does not keep serving, or publishes other addresses")
	}

	// SIGKILL: the others notice after a delay.
	replicas[1].Kill(t)
	harness.Eventually(t, "a server that died is withdrawn", func() bool { return published(last, 2) })
	replicas[1].Start(t)
	harness.Eventually(t, "it is back", func() bool { return published(last, 1, 2) })
	if now := identities(t, last); len(now) != len(before)-1 {
		t.Errorf("identity Leases are %v, but were %v before", now, before)
	}

	// Without a delay it is withdrawn by the time it exits.
	replicas[1].Stop(t)
	if !published(last, 2) {
		t.Error("a stopped server is published")
	}
	if now := identities(t, last); len(now) != len(before)-2 {
		t.Errorf("identity Leases are %v, but were %v before", now, before)
	}
}

// endpoints returns the sorted addresses of the Service kubernetes, as the server returns them in both Endpoints and
// EndpointSlices, or nil while they differ.
func endpoints(t *testing.T, r replica, port int) []string {
	t.Helper()
	old, err := r.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // they are made a moment after the server is ready
		return nil
	}
	harness.Must(t, err)
	var addresses, sliced []string
	for _, subset := range old.Subsets {
		for _, address := range subset.Addresses {
			addresses = append(addresses, address.IP)
		}
		if len(subset.Ports) != 1 || int(subset.Ports[0].Port) != port {
			t.Errorf("the ports are %v", subset.Ports)
		}
	}
	list, err := r.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	harness.Must(t, err)
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			sliced = append(sliced, endpoint.Addresses...)
		}
	}
	slices.Sort(addresses)
	slices.Sort(sliced)
	if !slices.Equal(addresses, sliced) {
		return nil
	}
	return addresses
}

// identities returns the names of the servers' Leases, and checks that each is held.
func identities(t *testing.T, r replica) []string {
	t.Helper()
	list, err := r.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	harness.Must(t, err)
	var names []string
	for _, lease := range list.Items {
		names = append(names, lease.Name)
		if !held(lease.Spec) || lease.Labels["kubernetes.io/hostname"] == "" {
			t.Errorf("the identity Lease %s is %v", lease.Name, lease.Spec)
		}
	}
	return names
}

func held(s coordinationv1.LeaseSpec) bool {
	return s.HolderIdentity != nil && s.RenewTime != nil && s.LeaseDurationSeconds != nil &&
		time.Since(s.RenewTime.Time) < time.Duration(*s.LeaseDurationSeconds)*time.Second
}

func get(t *testing.T, r replica, path string) error {
	t.Helper()
	_, err := r.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	return err
}
