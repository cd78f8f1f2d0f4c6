package verbs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/base64"
	"net/http"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/concepts/kit"
)

var subresources = []kit.Promise{
	{Statement: "status is read and written at its own path, for built-in and custom resources", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		c.MakeDefaultServiceAccount(t)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "pods"): kit.Pod("a"), c.Path("apps/v1", "deployments"): kit.Deployment("a"), c.Path(version, "widgets"): kit.Widget(version, "a"), c.Path("policy/v1", "poddisruptionbudgets"): kit.Manifest("{metadata: {name: a}}"),
		} {
			c.Post(t, path, object).Created(t)
			status := path + "/a/status"
			before := c.Get(t, status).OK(t)
			kit.Equal(t, before.Text(t, "metadata", "name"), "a")
			after := c.Patch(t, kit.MergePatch, status, `{"status":{"observedGeneration":7},"metadata":{"finalizers":["example.com/not-here"]}}`).OK(t)
			kit.Equal(t, after.Value(t, "status", "observedGeneration"), any(7.0))
			c.Put(t, status, kit.With(after.Object(t), int64(8), "status", "observedGeneration")).OK(t)
			kit.Equal(t, c.Get(t, path+"/a").Value(t, "status", "observedGeneration"), any(8.0))
			c.Post(t, status, object).Want(t, http.StatusMethodNotAllowed)
			c.Delete(t, status).Want(t, http.StatusMethodNotAllowed)
		}
	}},
	{Statement: "scale has the same kind for all resources with replicas, and a write of it changes only these", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		template := "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}"
		for path, object := range map[string]map[string]any{
			c.Path("apps/v1", "deployments"):       kit.Deployment("a"),
			c.Path("apps/v1", "replicasets"):       kit.Manifest("{metadata: {name: a}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, %s}}", template),
			c.Path("apps/v1", "statefulsets"):      kit.Manifest("{metadata: {name: a}, spec: {replicas: 3, serviceName: s, selector: {matchLabels: {a: b}}, %s}}", template),
			c.Path("v1", "replicationcontrollers"): kit.Manifest("{metadata: {name: a}, spec: {replicas: 3, selector: {a: b}, %s}}", template),
			c.Path(version, "widgets"):             kit.With(kit.Widget(version, "a"), int64(3), "spec", "replicas"),
		} {
			created := c.Post(t, path, object).Created(t)
			scale := c.Get(t, path+"/a/scale").OK(t)
			kit.Equal(t, scale.ResourceVersion(t), created.ResourceVersion(t))
			kit.Equal(t, []any{scale.Text(t, "kind"), scale.Text(t, "apiVersion"), scale.Value(t, "spec", "replicas")}, []any{"Scale", "autoscaling/v1", 3.0})
			written := c.Put(t, path+"/a/scale", kit.With(scale.Object(t), int64(5), "spec", "replicas")).OK(t)
			whole := c.Get(t, path+"/a")
			kit.Equal(t, whole.ResourceVersion(t), written.ResourceVersion(t))
			kit.Equal(t, whole.Value(t, "spec"), kit.With(created.Object(t), 5, "spec", "replicas")["spec"])
			c.Put(t, path+"/a/scale", kit.With(scale.Object(t), "b", "metadata", "name")).BadRequest(t, "(b) does not match the name on the URL (a)")
			c.Patch(t, kit.MergePatch, path+"/a/scale", `{"spec":{"replicas":2}}`).OK(t)
			kit.Equal(t, c.Get(t, path+"/a").Value(t, "spec", "replicas"), any(2.0))
			c.Put(t, path+"/a/scale", scale.Object(t)).Conflict(t, "the object has been modified")
			c.Patch(t, kit.MergePatch, path+"/a/scale", `{"spec":{"replicas":-1}}`).Invalid(t)
			c.Post(t, path+"/a/scale", scale.Object(t)).Want(t, http.StatusMethodNotAllowed)
			c.Delete(t, path+"/a/scale").Want(t, http.StatusMethodNotAllowed)
		}
	}},
	{Statement: "binding gives a pod its node, once, under the pod and in the collection bindings", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		for _, name := range []string{"a", "b"} {
			c.Post(t, c.Path("v1", "pods"), kit.Manifest("{metadata: {name: %s}, spec: {containers: [{name: c, image: i}]}}", name)).Created(t)
		}
		binding := func(name string) map[string]any {
			return kit.Manifest("{apiVersion: v1, kind: Binding, metadata: {name: %s}, target: {apiVersion: v1, kind: Node, name: node}}", name)
		}
		for path, name := range map[string]string{c.Path("v1", "pods", "a", "binding"): "a", c.Path("v1", "bindings"): "b"} {
			a := c.Post(t, path, binding(name)).Created(t)
			kit.Equal(t, []string{a.Text(t, "kind"), a.Text(t, "status")}, []string{"Status", "Success"})
			bound := c.Get(t, c.Path("v1", "pods", name))
			kit.Equal(t, bound.Text(t, "spec", "nodeName"), "node")
			status, _ := bound.Value(t, "status", "conditions").([]any)
			kit.Equal(t, []any{status[0].(map[string]any)["type"], status[0].(map[string]any)["status"]}, []any{"PodScheduled", "True"})
			c.Post(t, path, binding(name)).Conflict(t, "pod "+name+` is already assigned to node "node"`)
			c.Get(t, path).Want(t, http.StatusMethodNotAllowed)
		}
		c.Post(t, c.Path("v1", "pods", "none", "binding"), binding("none")).NotFound(t, `pods "none" not found`)
		a := c.Post(t, c.Path("v1", "pods", "a", "binding"), kit.With(binding("a"), "Pod", "target", "kind"))
		if a.Code != http.StatusInternalServerError || *kit.Against == "" { // kube-apiserver reports this as its own error
			a.BadRequest(t, `target.kind: Unsupported value: "Pod"`)
		}
	}},
	{Statement: "a pod is evicted unless a disruption budget forbids it, with 429", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		evict := func(name string, options string) kit.Answer {
			return c.Post(t, c.Path("v1", "pods", name, "eviction"), kit.Manifest("{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s}, deleteOptions: %s}", name, options))
		}
		for _, name := range []string{"free", "a", "b"} {
			p := kit.With(kit.Pod(name), map[string]string{"app": name}, "metadata", "labels")
			if name != "free" {
				p = kit.With(p, map[string]string{"app": "web"}, "metadata", "labels")
			}
			c.Post(t, c.Path("v1", "pods"), p).Created(t)
			ready := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
			c.Patch(t, kit.StrategicPatch, c.Path("v1", "pods", name, "status"), ready).OK(t)
		}
		evict("free", "{dryRun: [All]}").Created(t)
		c.Get(t, c.Path("v1", "pods", "free")).OK(t)
		evict("free", "{gracePeriodSeconds: 0}").Created(t)
		c.WaitGone(t, c.Path("v1", "pods", "free"))

		budget := kit.Manifest("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}")
		c.Post(t, c.Path("policy/v1", "poddisruptionbudgets"), budget).Created(t)
		evict("a", "{}").Refused(t, http.StatusTooManyRequests, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
		// A controller's status, which allows one of two pods to be evicted.
		counted := `{"status":{"observedGeneration":1,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2,"disruptionsAllowed":1}}`
		c.Patch(t, kit.MergePatch, c.Path("policy/v1", "poddisruptionbudgets", "b", "status"), counted).OK(t)
		evict("a", "{gracePeriodSeconds: 0}").Created(t)
		c.WaitGone(t, c.Path("v1", "pods", "a"))
		status := c.Get(t, c.Path("policy/v1", "poddisruptionbudgets", "b"))
		disrupted, _ := status.Value(t, "status", "disruptedPods").(map[string]any)
		if _, found := disrupted["a"]; !found || status.Value(t, "status", "disruptionsAllowed") != 0.0 {
			t.Errorf("the budget is %v", status.Value(t, "status"))
		}
		a := evict("b", "{}").Refused(t, http.StatusTooManyRequests, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
		cause := a.Value(t, "details", "causes").([]any)[0].(map[string]any)
		kit.Equal(t, cause["reason"], any("DisruptionBudget"))
		c.Get(t, c.Path("v1", "pods", "b")).OK(t)
		evict("none", "{}").NotFound(t, `pods "none" not found`)
		c.Get(t, c.Path("v1", "pods", "b", "eviction")).Want(t, http.StatusMethodNotAllowed)
	}},
	{Statement: "ephemeral containers are added at their own path, and stay", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "pods"), kit.Pod("a")).Created(t)
		path := c.Path("v1", "pods", "a", "ephemeralcontainers")
		add := `{"spec":{"ephemeralContainers":[{"name":"debug","image":"d"}]}}`
		c.Patch(t, kit.StrategicPatch, c.Path("v1", "pods", "a"), add).Invalid(t, "pod updates may not change fields other than")
		a := c.Patch(t, kit.StrategicPatch, path, add).OK(t)
		kit.Equal(t, len(a.Value(t, "spec", "ephemeralContainers").([]any)), 1)
		c.Patch(t, kit.StrategicPatch, path, `{"spec":{"ephemeralContainers":[{"name":"c","image":"d"}]}}`).Invalid(t, "Duplicate value")
		c.Patch(t, kit.MergePatch, path, `{"spec":{"ephemeralContainers":[]}}`).Invalid(t, "existing ephemeral containers")
		kit.Equal(t, len(c.Get(t, path).OK(t).Value(t, "spec", "ephemeralContainers").([]any)), 1)
		c.Delete(t, path).Want(t, http.StatusMethodNotAllowed)
	}},
	{Statement: "the path resize changes only a pod's resources", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		resources := map[string]any{"requests": map[string]any{"cpu": "1"}, "limits": map[string]any{"cpu": "2"}}
		p := kit.Manifest("{metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: %s}]}}", kit.JSON(resources))
		c.Post(t, c.Path("v1", "pods"), p).Created(t)
		change := `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1500m"}}}]}}`
		c.Patch(t, kit.StrategicPatch, c.Path("v1", "pods", "a"), change).Invalid(t, "pod updates may not change fields other than")
		path := c.Path("v1", "pods", "a", "resize")
		a := c.Patch(t, kit.StrategicPatch, path, change).OK(t)
		container := a.Value(t, "spec", "containers").([]any)[0].(map[string]any)
		kit.Equal(t, container["resources"], any(map[string]any{"requests": map[string]any{"cpu": "1500m"}, "limits": map[string]any{"cpu": "2"}}))
		kit.Equal(t, a.Value(t, "metadata", "generation"), any(2.0))
		a = c.Patch(t, kit.StrategicPatch, path, `{"spec":{"containers":[{"name":"c","image":"other"}]}}`).OK(t)
		kit.Equal(t, a.Value(t, "spec", "containers").([]any)[0].(map[string]any)["image"], any("i"))
		c.Patch(t, kit.StrategicPatch, path, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"3"}}}]}}`).Invalid(t, "must be less than or equal to cpu limit")
		c.Get(t, path).OK(t)
	}},
	{Statement: "a certificate signing request is approved or denied at the path approval", Proof: func(t *testing.T, c *kit.Cluster) {
		csrs := c.ClusterPath("certificates.k8s.io/v1", "certificatesigningrequests")
		csr := kit.Manifest("{metadata: {name: %s}, spec: {signerName: example.com/s, usages: [client auth], request: %s}}", c.Namespace, certificateRequest(t))
		c.Post(t, csrs, csr).Created(t)
		path := csrs + "/" + c.Namespace
		approved := `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Test"}]}}`
		c.Patch(t, kit.MergePatch, path+"/status", approved).Invalid(t, "updates may not add a condition of type \"Approved\"")
		a := c.Patch(t, kit.MergePatch, path+"/approval", approved).OK(t)
		kit.Equal(t, len(a.Value(t, "status", "conditions").([]any)), 1)
		c.Patch(t, kit.MergePatch, path+"/approval", `{"status":{"conditions":[]}}`).Invalid(t, "updates may not remove a condition of type \"Approved\"")
		kit.Equal(t, c.Get(t, path+"/approval").OK(t).Text(t, "metadata", "name"), c.Namespace)
		c.Post(t, path+"/approval", csr).Want(t, http.StatusMethodNotAllowed)
	}},
	{Statement: "finalize sets the finalizers in a namespace's spec, and has no other verb", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.ClusterPath("v1", "namespaces", c.Namespace, "finalize")
		namespace := c.Get(t, c.ClusterPath("v1", "namespaces", c.Namespace)).Object(t)
		a := c.Put(t, path, kit.With(namespace, []any{"kubernetes", "example.com/f"}, "spec", "finalizers")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "finalizers"), any([]any{"kubernetes", "example.com/f"}))
		c.Put(t, path, kit.With(a.Object(t), []any{"kubernetes"}, "spec", "finalizers")).OK(t)
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
			c.Send(t, method, path, nil, nil).Want(t, http.StatusMethodNotAllowed)
		}
	}},
}

// certificateRequest returns a request for a CertificateSigningRequest.
func certificateRequest(t *testing.T) string {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	text := kit.Must(cert.MakeCSR(key, &pkix.Name{CommonName: "jane"}, nil, nil))(t)
	return base64.StdEncoding.EncodeToString(text)
}
