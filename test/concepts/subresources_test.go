package concepts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/base64"
	"net/http"
	"testing"

	"k8s.io/client-go/util/cert"
)

var subresources = []promise{
	{"status is read and written at its own path, of built-in and custom resources", func(t *testing.T, c *cluster) {
		version := c.widgets(t, anySchema)
		c.serviceAccount(t)
		for path, object := range map[string]map[string]any{
			c.path("v1", "pods"): pod("a"), c.path("apps/v1", "deployments"): deployment("a"), c.path(version, "widgets"): widget(version, "a"), c.path("policy/v1", "poddisruptionbudgets"): manifest("{metadata: {name: a}}"),
		} {
			c.post(t, path, object).want(t, http.StatusCreated)
			status := path + "/a/status"
			before := c.get(t, status).want(t, http.StatusOK)
			equal(t, before.text(t, "metadata", "name"), "a")
			after := c.patch(t, mergePatch, status, `{"status":{"observedGeneration":7},"metadata":{"finalizers":["example.com/not-here"]}}`).want(t, http.StatusOK)
			equal(t, after.value(t, "status", "observedGeneration"), any(7.0))
			c.put(t, status, with(after.object(t), int64(8), "status", "observedGeneration")).want(t, http.StatusOK)
			equal(t, c.get(t, path+"/a").value(t, "status", "observedGeneration"), any(8.0))
			c.post(t, status, object).want(t, http.StatusMethodNotAllowed)
			c.delete(t, status).want(t, http.StatusMethodNotAllowed)
		}
	}},
	{"scale is the same kind for all that have replicas", func(t *testing.T, c *cluster) {
		version := c.widgets(t, anySchema)
		template := "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}"
		for path, object := range map[string]map[string]any{
			c.path("apps/v1", "deployments"):       deployment("a"),
			c.path("apps/v1", "replicasets"):       manifest("{metadata: {name: a}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, %s}}", template),
			c.path("apps/v1", "statefulsets"):      manifest("{metadata: {name: a}, spec: {replicas: 3, serviceName: s, selector: {matchLabels: {a: b}}, %s}}", template),
			c.path("v1", "replicationcontrollers"): manifest("{metadata: {name: a}, spec: {replicas: 3, selector: {a: b}, %s}}", template),
			c.path(version, "widgets"):             with(widget(version, "a"), int64(3), "spec", "replicas"),
		} {
			c.post(t, path, object).want(t, http.StatusCreated)
			scale := c.get(t, path+"/a/scale").want(t, http.StatusOK)
			equal(t, []any{scale.text(t, "kind"), scale.text(t, "apiVersion"), scale.value(t, "spec", "replicas")}, []any{"Scale", "autoscaling/v1", 3.0})
			c.put(t, path+"/a/scale", with(scale.object(t), int64(5), "spec", "replicas")).want(t, http.StatusOK)
			equal(t, c.get(t, path+"/a").value(t, "spec", "replicas"), any(5.0))
			c.patch(t, mergePatch, path+"/a/scale", `{"spec":{"replicas":2}}`).want(t, http.StatusOK)
			equal(t, c.get(t, path+"/a").value(t, "spec", "replicas"), any(2.0))
			c.put(t, path+"/a/scale", scale.object(t)).refused(t, http.StatusConflict, "Conflict", "the object has been modified")
			c.patch(t, mergePatch, path+"/a/scale", `{"spec":{"replicas":-1}}`).refused(t, http.StatusUnprocessableEntity, "Invalid")
			c.post(t, path+"/a/scale", scale.object(t)).want(t, http.StatusMethodNotAllowed)
			c.delete(t, path+"/a/scale").want(t, http.StatusMethodNotAllowed)
		}
	}},
	{"binding gives a pod its node, once, under the pod and in the collection bindings", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		for _, name := range []string{"a", "b"} {
			c.post(t, c.path("v1", "pods"), manifest("{metadata: {name: %s}, spec: {containers: [{name: c, image: i}]}}", name)).want(t, http.StatusCreated)
		}
		binding := func(name string) map[string]any {
			return manifest("{apiVersion: v1, kind: Binding, metadata: {name: %s}, target: {apiVersion: v1, kind: Node, name: node}}", name)
		}
		for path, name := range map[string]string{c.path("v1", "pods", "a", "binding"): "a", c.path("v1", "bindings"): "b"} {
			a := c.post(t, path, binding(name)).want(t, http.StatusCreated)
			equal(t, []string{a.text(t, "kind"), a.text(t, "status")}, []string{"Status", "Success"})
			bound := c.get(t, c.path("v1", "pods", name))
			equal(t, bound.text(t, "spec", "nodeName"), "node")
			status, _ := bound.value(t, "status", "conditions").([]any)
			equal(t, []any{status[0].(map[string]any)["type"], status[0].(map[string]any)["status"]}, []any{"PodScheduled", "True"})
			c.post(t, path, binding(name)).refused(t, http.StatusConflict, "Conflict", "pod "+name+` is already assigned to node "node"`)
			c.get(t, path).want(t, http.StatusMethodNotAllowed)
		}
		c.post(t, c.path("v1", "pods", "none", "binding"), binding("none")).refused(t, http.StatusNotFound, "NotFound", `pods "none" not found`)
		a := c.post(t, c.path("v1", "pods", "a", "binding"), with(binding("a"), "Pod", "target", "kind"))
		if a.Code != http.StatusInternalServerError || *against == "" { // kube-apiserver takes this for an error of its own
			a.refused(t, http.StatusBadRequest, "BadRequest", `target.kind: Unsupported value: "Pod"`)
		}
	}},
	{"a pod is evicted unless a disruption budget forbids it, which is told with 429", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		evict := func(name string, options string) answer {
			return c.post(t, c.path("v1", "pods", name, "eviction"), manifest("{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s}, deleteOptions: %s}", name, options))
		}
		for _, name := range []string{"free", "a", "b"} {
			p := with(pod(name), map[string]string{"app": name}, "metadata", "labels")
			if name != "free" {
				p = with(p, map[string]string{"app": "web"}, "metadata", "labels")
			}
			c.post(t, c.path("v1", "pods"), p).want(t, http.StatusCreated)
			ready := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
			c.patch(t, strategicPatch, c.path("v1", "pods", name, "status"), ready).want(t, http.StatusOK)
		}
		evict("free", "{dryRun: [All]}").want(t, http.StatusCreated)
		c.get(t, c.path("v1", "pods", "free")).want(t, http.StatusOK)
		evict("free", "{gracePeriodSeconds: 0}").want(t, http.StatusCreated)
		c.gone(t, c.path("v1", "pods", "free"))

		budget := manifest("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}")
		c.post(t, c.path("policy/v1", "poddisruptionbudgets"), budget).want(t, http.StatusCreated)
		evict("a", "{}").refused(t, http.StatusTooManyRequests, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
		// What a controller counts, and allows one of two pods to go.
		counted := `{"status":{"observedGeneration":1,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2,"disruptionsAllowed":1}}`
		c.patch(t, mergePatch, c.path("policy/v1", "poddisruptionbudgets", "b", "status"), counted).want(t, http.StatusOK)
		evict("a", "{gracePeriodSeconds: 0}").want(t, http.StatusCreated)
		c.gone(t, c.path("v1", "pods", "a"))
		status := c.get(t, c.path("policy/v1", "poddisruptionbudgets", "b"))
		disrupted, _ := status.value(t, "status", "disruptedPods").(map[string]any)
		if _, found := disrupted["a"]; !found || status.value(t, "status", "disruptionsAllowed") != 0.0 {
			t.Errorf("the budget is %v", status.value(t, "status"))
		}
		a := evict("b", "{}").refused(t, http.StatusTooManyRequests, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
		cause := a.value(t, "details", "causes").([]any)[0].(map[string]any)
		equal(t, cause["reason"], any("DisruptionBudget"))
		c.get(t, c.path("v1", "pods", "b")).want(t, http.StatusOK)
		evict("none", "{}").refused(t, http.StatusNotFound, "NotFound", `pods "none" not found`)
		c.get(t, c.path("v1", "pods", "b", "eviction")).want(t, http.StatusMethodNotAllowed)
	}},
	{"ephemeral containers are added at their own path, and stay", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "pods"), pod("a")).want(t, http.StatusCreated)
		path := c.path("v1", "pods", "a", "ephemeralcontainers")
		add := `{"spec":{"ephemeralContainers":[{"name":"debug","image":"d"}]}}`
		c.patch(t, strategicPatch, c.path("v1", "pods", "a"), add).refused(t, http.StatusUnprocessableEntity, "Invalid", "pod updates may not change fields other than")
		a := c.patch(t, strategicPatch, path, add).want(t, http.StatusOK)
		equal(t, len(a.value(t, "spec", "ephemeralContainers").([]any)), 1)
		c.patch(t, strategicPatch, path, `{"spec":{"ephemeralContainers":[{"name":"c","image":"d"}]}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "Duplicate value")
		c.patch(t, mergePatch, path, `{"spec":{"ephemeralContainers":[]}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "existing ephemeral containers")
		equal(t, len(c.get(t, path).want(t, http.StatusOK).value(t, "spec", "ephemeralContainers").([]any)), 1)
		c.delete(t, path).want(t, http.StatusMethodNotAllowed)
	}},
	{"a pod's resources are changed at the path resize, and nothing else is", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		resources := map[string]any{"requests": map[string]any{"cpu": "1"}, "limits": map[string]any{"cpu": "2"}}
		p := manifest("{metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: %s}]}}", asYAML(resources))
		c.post(t, c.path("v1", "pods"), p).want(t, http.StatusCreated)
		change := `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1500m"}}}]}}`
		c.patch(t, strategicPatch, c.path("v1", "pods", "a"), change).refused(t, http.StatusUnprocessableEntity, "Invalid", "pod updates may not change fields other than")
		path := c.path("v1", "pods", "a", "resize")
		a := c.patch(t, strategicPatch, path, change).want(t, http.StatusOK)
		container := a.value(t, "spec", "containers").([]any)[0].(map[string]any)
		equal(t, container["resources"], any(map[string]any{"requests": map[string]any{"cpu": "1500m"}, "limits": map[string]any{"cpu": "2"}}))
		equal(t, a.value(t, "metadata", "generation"), any(2.0))
		a = c.patch(t, strategicPatch, path, `{"spec":{"containers":[{"name":"c","image":"other"}]}}`).want(t, http.StatusOK)
		equal(t, a.value(t, "spec", "containers").([]any)[0].(map[string]any)["image"], any("i"))
		c.patch(t, strategicPatch, path, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"3"}}}]}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "must be less than or equal to cpu limit")
		c.get(t, path).want(t, http.StatusOK)
	}},
	{"a certificate signing request is approved or denied at the path approval", func(t *testing.T, c *cluster) {
		csrs := c.global("certificates.k8s.io/v1", "certificatesigningrequests")
		csr := manifest("{metadata: {name: %s}, spec: {signerName: example.com/s, usages: [client auth], request: %s}}", c.namespace, certificateRequest(t))
		c.post(t, csrs, csr).want(t, http.StatusCreated)
		path := csrs + "/" + c.namespace
		approved := `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Test"}]}}`
		c.patch(t, mergePatch, path+"/status", approved).refused(t, http.StatusUnprocessableEntity, "Invalid", "updates may not add a condition of type \"Approved\"")
		a := c.patch(t, mergePatch, path+"/approval", approved).want(t, http.StatusOK)
		equal(t, len(a.value(t, "status", "conditions").([]any)), 1)
		c.patch(t, mergePatch, path+"/approval", `{"status":{"conditions":[]}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "updates may not remove a condition of type \"Approved\"")
		equal(t, c.get(t, path+"/approval").want(t, http.StatusOK).text(t, "metadata", "name"), c.namespace)
		c.post(t, path+"/approval", csr).want(t, http.StatusMethodNotAllowed)
	}},
	{"finalize takes the finalizers of a namespace's spec, and has no other verb", func(t *testing.T, c *cluster) {
		path := c.global("v1", "namespaces", c.namespace, "finalize")
		namespace := c.get(t, c.global("v1", "namespaces", c.namespace)).object(t)
		a := c.put(t, path, with(namespace, []any{"kubernetes", "example.com/f"}, "spec", "finalizers")).want(t, http.StatusOK)
		equal(t, a.value(t, "spec", "finalizers"), any([]any{"kubernetes", "example.com/f"}))
		c.put(t, path, with(a.object(t), []any{"kubernetes"}, "spec", "finalizers")).want(t, http.StatusOK)
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
			c.send(t, method, path, nil, nil).want(t, http.StatusMethodNotAllowed)
		}
	}},
}

// certificateRequest is a request as a CertificateSigningRequest has it.
func certificateRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cert.MakeCSR(key, &pkix.Name{CommonName: "jane"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}
