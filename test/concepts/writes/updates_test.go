// Package writes tests sqube against the documentation of writes: updates, patches, dry run, field validation, generated
// values.
package writes

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Sections "Updates to existing resources" and "Dry-run". Server-side apply is in package apply, as are its dry runs; those of
// collection deletes are in package deletion.
func TestWrites(t *testing.T) {
	kit.ProveOnEngines(t, nil, slices.Concat(updates, subresourceUpdates, generatedValues, dryRuns, dryAdmission, rawJSON)...)
}

// Patches, and section "Field validation". Package badinput sends unknown and duplicate fields in every write of other objects, at
// every level.
func TestPatches(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(jsonPatches, mergePatches, strategicPatches, levels, anomalies())...)
}

var updates = []kit.Promise{
	{Statement: "an update replaces the object", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		created := c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap("a", map[string]string{"a": "1"}), "x",
			"metadata", "labels", "x")).Created(t)
		a := c.Put(t, path, kit.With(kit.ConfigMap("a", map[string]string{"b": "2"}), created.ResourceVersion(t), "metadata", "resourceVersion")).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"b": "2"})
		kit.Equal(t, a.Value(t, "metadata", "labels"), nil)
		kit.Equal(t, c.Get(t, path).OK(t).Object(t), a.Object(t))
	}},
	{Statement: "an update with an old or unknown resourceVersion is a conflict, and changes nothing", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		created := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		second := c.Put(t, path, kit.With(created.Object(t), "2", "data", "a")).OK(t)
		for _, version := range []string{created.ResourceVersion(t), "999999999"} {
			a := c.Put(t, path, kit.With(kit.ConfigMap("a", nil), version, "metadata", "resourceVersion"))
			a.Conflict(t, `Operation cannot be fulfilled on configmaps "a": `+kit.ModifiedMessage)
			kit.Equal(t, a.Value(t, "details"), map[string]any{"name": "a", "kind": "configmaps"})
		}
		// kube-apiserver returns 500 without a reason.
		c.Put(t, path, kit.With(kit.ConfigMap("a", nil), "x", "metadata", "resourceVersion")).Want(t, http.StatusBadRequest,
			http.StatusInternalServerError)
		kit.Equal(t, c.Get(t, path).Object(t), second.Object(t))
	}},
	{Statement: "an update without a resourceVersion is unconditional for most kinds, and rejected for some", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps", "a"):                        kit.ConfigMap("a", nil),
			c.Path("v1", "secrets", "a"):                           kit.Manifest("{metadata: {name: a}}"),
			c.Path("v1", "services", "a"):                          kit.Service("a"),
			c.Path("apps/v1", "deployments", "a"):                  kit.Deployment("a"),
			c.Path("rbac.authorization.k8s.io/v1", "roles", "a"):   kit.Manifest("{metadata: {name: a}, rules: []}"),
			c.Path("networking.k8s.io/v1", "networkpolicies", "a"): kit.Manifest("{metadata: {name: a}, spec: {podSelector: {}}}"),
			c.Path("discovery.k8s.io/v1", "endpointslices", "a"):   kit.Manifest("{metadata: {name: a}, addressType: IPv4, endpoints: []}"),
			c.Path("autoscaling/v2", "horizontalpodautoscalers/a"): kit.Manifest("{metadata: {name: a}, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Job, name: a}}}"),
		} {
			c.Post(t, kit.CollectionOf(path), object).Created(t)
			c.Put(t, path, object).OK(t)
			c.Put(t, path, kit.With(object, "0", "metadata", "resourceVersion")).OK(t) // 0 means none, too
		}
		for path, object := range map[string]map[string]any{
			c.Path("coordination.k8s.io/v1", "leases", "a"):  kit.Manifest("{metadata: {name: a}, spec: {}}"),
			c.Path("policy/v1", "poddisruptionbudgets", "a"): kit.Manifest("{metadata: {name: a}, spec: {minAvailable: 1, selector: {}}}"),
			c.Path(groupVersion, "widgets", "a"):             kit.Widget(groupVersion, "a"),
		} {
			c.Post(t, kit.CollectionOf(path), object).Created(t)
			c.Put(t, path, object).Invalid(t, "metadata.resourceVersion: Invalid value: ", "must be specified for an update")
		}
	}},
	{Statement: "an update of a missing object gets 404 for most kinds, and is a create for some", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps", "a"):       kit.ConfigMap("a", nil),
			c.Path("apps/v1", "deployments", "a"): kit.Deployment("a"),
			c.Path(groupVersion, "widgets", "a"):  kit.Widget(groupVersion, "a"),
		} {
			c.Put(t, path, object).NotFound(t)
			c.Put(t, path, kit.With(object, "5", "metadata", "resourceVersion")).NotFound(t)
		}
		for path, object := range map[string]map[string]any{
			c.Path("coordination.k8s.io/v1", "leases", "a"): kit.Manifest("{metadata: {name: a}, spec: {}}"),
			c.Path("v1", "services", "a"):                   kit.Service("a"),
			c.Path("v1", "endpoints", "b"):                  kit.Manifest("{metadata: {name: b}}"),
			c.Path("v1", "limitranges", "a"):                kit.Manifest("{metadata: {name: a}, spec: {limits: []}}"),
			c.Path("v1", "events",
				"a"): kit.Manifest("{metadata: {name: a}, involvedObject: {namespace: %s}}", c.Namespace),
			c.Path("rbac.authorization.k8s.io/v1", "roles", "a"): kit.Manifest("{metadata: {name: a}}"),
		} {
			a := c.Put(t, path, object).Created(t)
			kit.Equal(t, c.Get(t, path).OK(t).Object(t), a.Object(t))
		}
	}},
	{Statement: "an update that changes nothing keeps the resourceVersion, and causes no event", Proof: func(t *testing.T, c *kit.Cluster) {
		deployments := c.Path("apps/v1", "deployments")
		created := c.Post(t, deployments, kit.Deployment("a")).Created(t)
		watch := c.Watch(t, deployments+"?watch=true&resourceVersion="+created.ResourceVersion(t))
		for _, a := range []kit.Answer{
			c.Put(t, deployments+"/a", created.Object(t)),
			c.Put(t, deployments+"/a", kit.Deployment("a")),
			c.Patch(t, kit.MergePatch, deployments+"/a", `{"spec":{"replicas":3}}`),
			c.Patch(t, kit.MergePatch, deployments+"/a", `{}`),
			c.Patch(t, kit.JSONPatch, deployments+"/a", `[]`),
			c.Patch(t, kit.StrategicPatch, deployments+"/a", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`),
		} {
			kit.Equal(t, a.OK(t).ResourceVersion(t), created.ResourceVersion(t))
		}
		changed := c.Patch(t, kit.MergePatch, deployments+"/a", `{"spec":{"replicas":4}}`).OK(t)
		kit.Equal(t, watch.Next(t).ResourceVersion(), changed.ResourceVersion(t))
	}},
	{Statement: "more than 3 MiB get 413, in every write", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Post(t, kit.CollectionOf(path), kit.ConfigMap("a", nil)).Created(t)
		large := kit.ConfigMap("a", map[string]string{"a": strings.Repeat("x", 3<<20)})
		for _, a := range []kit.Answer{
			c.Post(t, kit.CollectionOf(path), large),
			c.Put(t, path, large),
			c.Patch(t, kit.MergePatch, path, large),
			c.Patch(t, kit.StrategicPatch, path, large),
			c.Patch(t, kit.JSONPatch, path, []any{large}),
			c.Apply(t, path, "one", large),
			c.Send(t, http.MethodDelete, path, nil, large),
		} {
			a.Refused(t, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
		}
	}},
	{Statement: "no update is lost: all increments of a number by 16 writers are counted", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "counter")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("counter", map[string]string{"n": "0"})).Created(t)
		const writers, each = 16, 5
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for done := 0; done < each && !t.Failed(); {
					now := c.Get(t, path)
					n, err := strconv.Atoi(now.Text(t, "data", "n"))
					if err != nil {
						t.Error(err)
						return
					}
					switch a := c.Put(t, path, kit.With(now.Object(t), strconv.Itoa(n+1), "data", "n")); a.Code {
					case http.StatusOK:
						done++
					case http.StatusConflict:
					default:
						t.Errorf("the response is %d: %s", a.Code, a.Body)
					}
				}
			})
		}
		group.Wait()
		kit.Equal(t, c.Get(t, path).Text(t, "data", "n"), strconv.Itoa(writers*each))
	}},
	{Statement: "the server retries a patch after a conflict: 16 concurrent patches of one object all succeed", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		var group sync.WaitGroup
		for writer := range 16 {
			group.Go(func() {
				for i := range 5 {
					if a := c.Patch(t, kit.MergePatch, path, fmt.Sprintf(`{"data":{"w%d-%d":"1"}}`, writer, i)); a.Code != http.StatusOK {
						t.Errorf("the response is %d: %s", a.Code, a.Body)
					}
				}
			})
		}
		group.Wait()
		if data := c.Get(t, path).Value(t, "data").(map[string]any); len(data) != 16*5 {
			t.Errorf("%d of %d patches are there", len(data), 16*5)
		}
	}},
}

var subresourceUpdates = []kit.Promise{
	{Statement: "a write of the object keeps its status, and a write of the status keeps its spec", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.StructuralSchema)
		for path, object := range map[string]map[string]any{
			c.Path("apps/v1", "deployments", "a"): kit.Deployment("a"),
			c.Path(groupVersion, "widgets", "a"):  kit.With(kit.Widget(groupVersion, "a"), 3, "spec", "replicas"),
		} {
			created := c.Post(t, kit.CollectionOf(path), kit.With(object, 7, "status", "replicas")).Created(t)
			if n := created.Value(t, "status", "replicas"); n != nil {
				t.Errorf("%s: the create set the status: %v", path, n)
			}
			a := c.Patch(t, kit.MergePatch, path+"/status",
				`{"status":{"replicas":2},"spec":{"replicas":9},"metadata":{"labels":{"a":"b"}}}`).OK(t)
			kit.Equal(t, a.Value(t, "status", "replicas"), 2.0)
			kit.Equal(t, a.Value(t, "spec", "replicas"), 3.0)
			kit.Equal(t, a.Value(t, "metadata", "labels"), nil)
			kit.Equal(t, a.Value(t, "metadata", "generation"), 1.0)
			c.Patch(t, kit.MergePatch, path+"/status", `{"status":{"replicas":"many"}}`).Invalid(t, "status.replicas")
			a = c.Put(t, path, kit.With(kit.With(a.Object(t), 4, "spec", "replicas"), 8, "status", "replicas")).OK(t)
			kit.Equal(t, a.Value(t, "status", "replicas"), 2.0)
			kit.Equal(t, a.Value(t, "spec", "replicas"), 4.0)
			a = c.Put(t, path+"/status", kit.With(kit.With(a.Object(t), 5, "spec", "replicas"), 3, "status", "replicas")).OK(t)
			kit.Equal(t, a.Value(t, "status", "replicas"), 3.0)
			kit.Equal(t, a.Value(t, "spec", "replicas"), 4.0)
			c.Put(t, path+"/status", kit.With(a.Object(t), created.ResourceVersion(t), "metadata", "resourceVersion")).Conflict(t, kit.ModifiedMessage)
			kit.Equal(t, c.Get(t, path+"/status").OK(t).Object(t), c.Get(t, path).Object(t))
		}
	}},
}
