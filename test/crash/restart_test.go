package crash

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// testTimeout limits a test on a busy machine.
const testTimeout = 10 * time.Minute

// TestRestartLosesNothing stops the server gracefully and starts it again, twice. Every object that a new cluster has, of every
// served resource, is still there. For objects that clients write, see TestRobustness.
func TestRestartLosesNothing(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		client, err := dynamic.NewForConfig(server.Config(t))
		harness.Must(t, err)
		before := everything(t, ctx, server, client)
		for range 2 {
			server.Stop(t)
			server.Start(t)
			after := everything(t, ctx, server, client)
			for _, id := range slices.Sorted(maps.Keys(before)) {
				if after[id] != before[id] {
					t.Errorf("%s had uid %q, and now has %q", id, before[id], after[id])
				}
			}
		}
	})
}

// everything returns the uid of every object, by resource, namespace and name, except for Leases and events, which come and go.
func everything(t *testing.T, ctx context.Context, server *sqube.Server, client dynamic.Interface) map[string]string {
	t.Helper()
	finder, err := discovery.NewDiscoveryClientForConfig(server.Config(t))
	harness.Must(t, err)
	groups, err := finder.ServerPreferredResources()
	harness.Must(t, err)
	found := map[string]string{}
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		harness.Must(t, err)
		for _, resource := range group.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains([]string{"leases", "events", "componentstatuses"}, resource.Name) {
				continue
			}
			list, err := client.Resource(version.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list %s: %v", resource.Name, err)
			}
			for _, item := range list.Items {
				id := strings.Join([]string{version.Group, resource.Name, item.GetNamespace(), item.GetName()}, "/")
				found[id] = string(item.GetUID())
			}
		}
	}
	return found
}
