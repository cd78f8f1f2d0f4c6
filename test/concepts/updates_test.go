package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Section "Updates to existing resources": PUT. Patches are in patches_test.go.
func TestUpdates(t *testing.T) {
	prove(t, nil, slices.Concat(updates, subresourceUpdates, generatedValues)...)
}

const modified = "the object has been modified; please apply your changes to the latest version and try again"

var updates = []promise{
	{"an update replaces the object", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		created := c.post(t, c.path("v1", "configmaps"), with(configMap("a", map[string]string{"a": "1"}), "x",
			"metadata", "labels", "x")).created(t)
		a := c.put(t, path, with(configMap("a", map[string]string{"b": "2"}), created.version(t), "metadata", "resourceVersion")).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"b": "2"})
		equal(t, a.value(t, "metadata", "labels"), nil)
		equal(t, c.get(t, path).ok(t).object(t), a.object(t))
	}},
	{"an update of an older version, or of one that does not exist, is a conflict, and changes nothing", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		created := c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		second := c.put(t, path, with(created.object(t), "2", "data", "a")).ok(t)
		for _, version := range []string{created.version(t), "999999999"} {
			a := c.put(t, path, with(configMap("a", nil), version, "metadata", "resourceVersion"))
			a.conflict(t, `Operation cannot be fulfilled on configmaps "a": `+modified)
			equal(t, a.value(t, "details"), map[string]any{"name": "a", "kind": "configmaps"})
		}
		// kube-apiserver answers 500 and gives no reason.
		c.put(t, path, with(configMap("a", nil), "x", "metadata", "resourceVersion")).want(t, http.StatusBadRequest,
			http.StatusInternalServerError)
		equal(t, c.get(t, path).object(t), second.object(t))
	}},
	{"an update without a version is unconditional for most kinds, and refused for some", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for path, object := range map[string]map[string]any{
			c.path("v1", "configmaps", "a"):                        configMap("a", nil),
			c.path("v1", "secrets", "a"):                           manifest("{metadata: {name: a}}"),
			c.path("v1", "services", "a"):                          service("a"),
			c.path("apps/v1", "deployments", "a"):                  deployment("a"),
			c.path("rbac.authorization.k8s.io/v1", "roles", "a"):   manifest("{metadata: {name: a}, rules: []}"),
			c.path("networking.k8s.io/v1", "networkpolicies", "a"): manifest("{metadata: {name: a}, spec: {podSelector: {}}}"),
			c.path("discovery.k8s.io/v1", "endpointslices", "a"):   manifest("{metadata: {name: a}, addressType: IPv4, endpoints: []}"),
			c.path("autoscaling/v2", "horizontalpodautoscalers/a"): manifest("{metadata: {name: a}, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Job, name: a}}}"),
		} {
			c.post(t, collection(path), object).created(t)
			c.put(t, path, object).ok(t)
			c.put(t, path, with(object, "0", "metadata", "resourceVersion")).ok(t) // 0 is none, too
		}
		for path, object := range map[string]map[string]any{
			c.path("coordination.k8s.io/v1", "leases", "a"):  manifest("{metadata: {name: a}, spec: {}}"),
			c.path("policy/v1", "poddisruptionbudgets", "a"): manifest("{metadata: {name: a}, spec: {minAvailable: 1, selector: {}}}"),
			c.path(groupVersion, "widgets", "a"):             widget(groupVersion, "a"),
		} {
			c.post(t, collection(path), object).created(t)
			c.put(t, path, object).invalid(t, "metadata.resourceVersion: Invalid value: ", "must be specified for an update")
		}
	}},
	{"an update of what does not exist is 404 for most kinds, and a create for some", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for path, object := range map[string]map[string]any{
			c.path("v1", "configmaps", "a"):       configMap("a", nil),
			c.path("apps/v1", "deployments", "a"): deployment("a"),
			c.path(groupVersion, "widgets", "a"):  widget(groupVersion, "a"),
		} {
			c.put(t, path, object).notFound(t)
			c.put(t, path, with(object, "5", "metadata", "resourceVersion")).notFound(t)
		}
		for path, object := range map[string]map[string]any{
			c.path("coordination.k8s.io/v1", "leases", "a"): manifest("{metadata: {name: a}, spec: {}}"),
			c.path("v1", "services", "a"):                   service("a"),
			c.path("v1", "endpoints", "b"):                  manifest("{metadata: {name: b}}"),
			c.path("v1", "limitranges", "a"):                manifest("{metadata: {name: a}, spec: {limits: []}}"),
			c.path("v1", "events",
				"a"): manifest("{metadata: {name: a}, involvedObject: {namespace: %s}}", c.namespace),
			c.path("rbac.authorization.k8s.io/v1", "roles", "a"): manifest("{metadata: {name: a}}"),
		} {
			a := c.put(t, path, object).created(t)
			equal(t, c.get(t, path).ok(t).object(t), a.object(t))
		}
	}},
	{"an update that changes nothing leaves the version, and watchers see none", func(t *testing.T, c *cluster) {
		deployments := c.path("apps/v1", "deployments")
		created := c.post(t, deployments, deployment("a")).created(t)
		watch := c.watch(t, deployments+"?watch=true&resourceVersion="+created.version(t))
		for _, a := range []answer{
			c.put(t, deployments+"/a", created.object(t)),
			c.put(t, deployments+"/a", deployment("a")),
			c.patch(t, mergePatch, deployments+"/a", `{"spec":{"replicas":3}}`),
			c.patch(t, mergePatch, deployments+"/a", `{}`),
			c.patch(t, jsonPatch, deployments+"/a", `[]`),
			c.patch(t, strategicPatch, deployments+"/a", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`),
		} {
			equal(t, a.ok(t).version(t), created.version(t))
		}
		changed := c.patch(t, mergePatch, deployments+"/a", `{"spec":{"replicas":4}}`).ok(t)
		equal(t, watch.next(t).version(), changed.version(t))
	}},
	{"an object whose name, namespace or kind is not that of the path is refused", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		for body, message := range map[string]string{
			`{"metadata":{"name":"b"}}`:                                   "the name of the object (b) does not match the name on the URL (a)",
			`{"metadata":{}}`:                                             "the name of the object (a based on URL) was undeterminable: name must be provided",
			`{"metadata":{"name":"a","namespace":"default"}}`:             "the namespace of the provided object does not match the namespace sent on the request",
			`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}`: `Secret in version "v1" cannot be handled as a ConfigMap`,
			``: "the object provided is unrecognized (must be of type ConfigMap)",
		} {
			c.put(t, path, body).badRequest(t, message)
		}
		c.post(t, c.path("v1", "configmaps"), `{"metadata":{"name":"b","namespace":"default"}}`).badRequest(t,
			"the namespace of the provided object does not match the namespace sent on the request")
	}},
	{"more than 3 MiB at once is 413, in every write", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, collection(path), configMap("a", nil)).created(t)
		large := configMap("a", map[string]string{"a": strings.Repeat("x", 3<<20)})
		for _, a := range []answer{
			c.post(t, collection(path), large),
			c.put(t, path, large),
			c.patch(t, mergePatch, path, large),
			c.patch(t, strategicPatch, path, large),
			c.patch(t, jsonPatch, path, []any{large}),
			c.apply(t, path, "one", large),
			c.send(t, http.MethodDelete, path, nil, large),
		} {
			a.refused(t, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
		}
	}},
	{"no update is lost: of 16 writers who increment a number, all increments are counted", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "counter")
		c.post(t, c.path("v1", "configmaps"), configMap("counter", map[string]string{"n": "0"})).created(t)
		const writers, each = 16, 5
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for done := 0; done < each && !t.Failed(); {
					now := c.get(t, path)
					n, err := strconv.Atoi(now.text(t, "data", "n"))
					if err != nil {
						t.Error(err)
						return
					}
					switch a := c.put(t, path, with(now.object(t), strconv.Itoa(n+1), "data", "n")); a.Code {
					case http.StatusOK:
						done++
					case http.StatusConflict:
					default:
						t.Errorf("the answer is %d: %s", a.Code, a.Body)
					}
				}
			})
		}
		group.Wait()
		equal(t, c.get(t, path).text(t, "data", "n"), strconv.Itoa(writers*each))
	}},
	{"the server repeats a patch that lost against another write: 16 patchers of one object all succeed", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		var group sync.WaitGroup
		for writer := range 16 {
			group.Go(func() {
				for i := range 5 {
					if a := c.patch(t, mergePatch, path, fmt.Sprintf(`{"data":{"w%d-%d":"1"}}`, writer, i)); a.Code != http.StatusOK {
						t.Errorf("the answer is %d: %s", a.Code, a.Body)
					}
				}
			})
		}
		group.Wait()
		if data := c.get(t, path).value(t, "data").(map[string]any); len(data) != 16*5 {
			t.Errorf("%d of %d patches are there", len(data), 16*5)
		}
	}},
}

var subresourceUpdates = []promise{
	{"a write of the object leaves its status, and a write of the status leaves its spec", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, structural)
		for path, object := range map[string]map[string]any{
			c.path("apps/v1", "deployments", "a"): deployment("a"),
			c.path(groupVersion, "widgets", "a"):  with(widget(groupVersion, "a"), 3, "spec", "replicas"),
		} {
			created := c.post(t, collection(path), with(object, 7, "status", "replicas")).created(t)
			if n := created.value(t, "status", "replicas"); n != nil {
				t.Errorf("%s: the status came with the create: %v", path, n)
			}
			a := c.patch(t, mergePatch, path+"/status",
				`{"status":{"replicas":2},"spec":{"replicas":9},"metadata":{"labels":{"a":"b"}}}`).ok(t)
			equal(t, a.value(t, "status", "replicas"), 2.0)
			equal(t, a.value(t, "spec", "replicas"), 3.0)
			equal(t, a.value(t, "metadata", "generation"), 1.0)
			a = c.put(t, path, with(with(a.object(t), 4, "spec", "replicas"), 8, "status", "replicas")).ok(t)
			equal(t, a.value(t, "status", "replicas"), 2.0)
			equal(t, a.value(t, "spec", "replicas"), 4.0)
			a = c.put(t, path+"/status", with(with(a.object(t), 5, "spec", "replicas"), 3, "status", "replicas")).ok(t)
			equal(t, a.value(t, "status", "replicas"), 3.0)
			equal(t, a.value(t, "spec", "replicas"), 4.0)
			c.put(t, path+"/status", with(a.object(t), created.version(t), "metadata", "resourceVersion")).conflict(t, modified)
			equal(t, c.get(t, path+"/status").ok(t).object(t), c.get(t, path).object(t))
		}
	}},
	{"a write of the scale changes the replicas and nothing else", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, structural)
		for path, object := range map[string]map[string]any{
			c.path("apps/v1", "deployments", "a"): deployment("a"),
			c.path(groupVersion, "widgets", "a"):  with(widget(groupVersion, "a"), 3, "spec", "replicas"),
		} {
			created := c.post(t, collection(path), object).created(t)
			scale := c.get(t, path+"/scale").ok(t)
			equal(t, scale.text(t, "apiVersion")+" "+scale.text(t, "kind"), "autoscaling/v1 Scale")
			equal(t, scale.value(t, "spec", "replicas"), 3.0)
			equal(t, scale.version(t), created.version(t))
			a := c.put(t, path+"/scale", with(scale.object(t), 5, "spec", "replicas")).ok(t)
			equal(t, a.value(t, "spec", "replicas"), 5.0)
			c.put(t, path+"/scale", with(scale.object(t), 6, "spec", "replicas")).conflict(t, modified)
			whole := c.get(t, path).ok(t)
			equal(t, whole.value(t, "spec"), with(created.object(t), 5, "spec", "replicas")["spec"])
			equal(t, whole.version(t), a.version(t))
			c.patch(t, mergePatch, path+"/scale", `{"spec":{"replicas":-1}}`).invalid(t, "spec.replicas")
			c.put(t, path+"/scale", with(scale.object(t), "b", "metadata", "name")).badRequest(t,
				"(b) does not match the name on the URL (a)")
		}
	}},
}
