package operation

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// bodies are the promises about the bodies of requests and responses in events, and about annotations.
func bodies(l kit.AuditLog) []kit.Promise {
	return []kit.Promise{
		{Statement: "at level Metadata, no body is recorded", Proof: func(t *testing.T, c *kit.Cluster) {
			secret := map[string]any{"metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"key": "hidden"}}
			for _, r := range []struct{ method, path string }{
				{http.MethodPost, c.Path("v1", "secrets")}, {http.MethodGet, c.Path("v1", "secrets")}, {http.MethodGet, c.Path("v1", "secrets", "s")},
			} {
				a, e := l.Send(t, c.Client, r.method, r.path, nil, secret)
				a.Want(t, http.StatusOK, http.StatusCreated)
				if e.Level != "Metadata" || e.RequestObject != nil || e.ResponseObject != nil {
					t.Errorf("the event of %s is %+v", r.path, e)
				}
			}
		}},
		{Statement: "at level Request, the request's object is recorded as sent, with defaults, and the response's is not", Proof: func(t *testing.T, c *kit.Cluster) {
			service := map[string]any{"metadata": map[string]any{"name": "s"}, "spec": map[string]any{"ports": []any{map[string]any{"port": 80}}}}
			a, e := l.Send(t, c.Client, http.MethodPost, c.Path("v1", "services"), nil, service)
			a.Created(t)
			port, _, err := unstructured.NestedString(kit.ObjectOf(e.RequestObject), "spec", "sessionAffinity")
			if err != nil || port != "None" || e.ResponseObject != nil {
				t.Errorf("the event is %+v, %v", e, err)
			}
			if _, e := l.Send(t, c.Client, http.MethodGet, c.Path("v1", "services", "s"), nil, nil); e.RequestObject != nil || e.ResponseObject != nil {
				t.Errorf("the event of a get is %+v", e)
			}
		}},
		{Statement: "at level RequestResponse, both objects are recorded, without managed fields if the policy says so", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, r := range []struct{ method, path string }{
				{http.MethodPost, c.Path("v1", "configmaps")}, {http.MethodPut, c.Path("v1", "configmaps", "a")},
			} {
				a, e := l.Send(t, c.Client, r.method, r.path, nil, kit.ConfigMap("a", map[string]string{"key": r.method}))
				a.Want(t, http.StatusOK, http.StatusCreated)
				value, _, _ := unstructured.NestedString(kit.ObjectOf(e.RequestObject), "data", "key")
				if value != r.method || !reflect.DeepEqual(e.ResponseObject, withoutManagedFields(a.Object(t))) {
					t.Errorf("%s is recorded as %v and %v", r.method, e.RequestObject, e.ResponseObject)
				}
			}
		}},
		{Statement: "responses to reads are recorded, whatever form the client requests", Proof: func(t *testing.T, c *kit.Cluster) {
			made := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", map[string]string{"key": "value"})).Created(t)
			// At one revision, since other tests write meanwhile.
			only := "?fieldSelector=metadata.name%3Da&resourceVersionMatch=Exact&resourceVersion=" + made.ResourceVersion(t)
			for _, path := range []string{c.Path("v1", "configmaps", "a"), c.Path("v1", "configmaps") + only} {
				want := withoutManagedFields(c.Get(t, path).Object(t))
				for _, form := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "application/json;pretty=1"} {
					a, e := l.Send(t, c.Client, http.MethodGet, path, kit.Header{"Accept", form}, nil)
					a.OK(t)
					if !reflect.DeepEqual(e.ResponseObject, want) {
						t.Errorf("%s as %s is recorded as %v\ninstead of %v", path, form, e.ResponseObject, want)
					}
				}
			}
			for kind, form := range map[string]string{
				"Table":                     "application/json;as=Table;v=v1;g=meta.k8s.io",
				"PartialObjectMetadataList": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
			} {
				a, e := l.Send(t, c.Client, http.MethodGet, c.Path("v1", "configmaps")+only, kit.Header{"Accept", form}, nil)
				a.OK(t)
				if e.ResponseObject["kind"] != kind {
					t.Errorf("%s is recorded as %v", kind, e.ResponseObject)
				}
			}
		}},
		{Statement: "managed fields are recorded if a rule overrides the policy", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "podtemplates")
			c.Post(t, path, map[string]any{"metadata": map[string]any{"name": "a"}, "template": podTemplate()}).Created(t)
			for _, path := range []string{path, path + "/a"} {
				a, e := l.Send(t, c.Client, http.MethodGet, path, nil, nil)
				if !strings.Contains(string(a.Body), "managedFields") || !reflect.DeepEqual(e.ResponseObject, a.Object(t)) {
					t.Errorf("%s is recorded as %v", path, e.ResponseObject)
				}
			}
		}},
		{Statement: "a patch is recorded as sent", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "configmaps", "a")
			c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", map[string]string{"key": "value"})).Created(t)
			for kind, patch := range map[string]any{
				kit.MergePatch:     map[string]any{"data": map[string]any{"merge": "x"}},
				kit.StrategicPatch: map[string]any{"data": map[string]any{"strategic": "x"}},
				kit.JSONPatch:      []any{map[string]any{"op": "add", "path": "/data/json", "value": "x"}},
			} {
				a, e := l.Send(t, c.Client, http.MethodPatch, path, kit.Header{"Content-Type", kind}, patch)
				a.OK(t)
				if e.Verb != "patch" || !reflect.DeepEqual(e.RequestObject, patch) || !reflect.DeepEqual(e.ResponseObject, withoutManagedFields(a.Object(t))) {
					t.Errorf("%s is recorded as %v and %v", kind, e.RequestObject, e.ResponseObject)
				}
			}
			applied := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"applied": "x"}}
			a, e := l.Send(t, c.Client, http.MethodPatch, path+"?fieldManager=prover", kit.Header{"Content-Type", kit.ApplyPatch}, applied)
			a.OK(t)
			if !reflect.DeepEqual(e.RequestObject, applied) {
				t.Errorf("the applied configuration is recorded as %v", e.RequestObject)
			}
		}},
		{Statement: "a deletion is recorded with its options and its response", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
			a, e := l.Send(t, c.Client, http.MethodDelete, c.Path("v1", "configmaps", "a"), nil, map[string]any{"propagationPolicy": "Background"})
			a.OK(t)
			if kit.ObjectOf(e.RequestObject)["propagationPolicy"] != "Background" || e.ResponseObject["kind"] != "Status" || e.ResponseObject["status"] != "Success" {
				t.Errorf("the event is %+v", e)
			}
			a, e = l.Send(t, c.Client, http.MethodDelete, c.Path("v1", "configmaps")+"?labelSelector=none", nil, nil)
			a.OK(t)
			if e.Verb != "deletecollection" || e.ResponseObject["kind"] != "ConfigMapList" {
				t.Errorf("the event is %+v", e)
			}
		}},
		{Statement: "the Status of a failure is recorded", Proof: func(t *testing.T, c *kit.Cluster) {
			a, e := l.Send(t, c.Client, http.MethodGet, c.Path("v1", "configmaps", "missing"), nil, nil)
			a.Want(t, http.StatusNotFound)
			if !reflect.DeepEqual(e.ResponseObject, a.Object(t)) {
				t.Errorf("the event is %+v", e)
			}
		}},
		{Statement: "a subresource is recorded as one", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Post(t, c.Path("v1", "serviceaccounts"), map[string]any{"metadata": map[string]any{"name": "a"}}).Created(t)
			a, e := l.Send(t, c.Client, http.MethodPost, c.Path("v1", "serviceaccounts", "a", "token"), nil, map[string]any{})
			a.Created(t)
			if o := e.ObjectRef; o == nil || o.Resource != "serviceaccounts" || o.Subresource != "token" || o.Name != "a" || e.ResponseObject != nil {
				t.Errorf("the event is %+v", e)
			}
		}},
		{Statement: "custom resources are recorded with their bodies", Proof: func(t *testing.T, c *kit.Cluster) {
			plural := "audited" + strings.ReplaceAll(c.Namespace, "-", "")
			definition := map[string]any{
				"metadata": map[string]any{"name": plural + ".audit.example.com"},
				"spec": map[string]any{
					"group": "audit.example.com", "scope": "Namespaced",
					"names": map[string]any{"plural": plural, "kind": "Audited"},
					"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
						"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
					}}},
				},
			}
			c.Post(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).Created(t)
			path := c.Path("audit.example.com/v1", plural)
			harness.Eventually(t, "the custom resource is served", func() bool { return c.Get(t, path).Code == http.StatusOK })

			custom := map[string]any{"apiVersion": "audit.example.com/v1", "kind": "Audited", "metadata": map[string]any{"name": "a"}, "spec": "text"}
			a, e := l.Send(t, c.Client, http.MethodPost, path, nil, custom)
			a.Created(t)
			if kit.ObjectOf(e.RequestObject)["spec"] != "text" || !reflect.DeepEqual(e.ResponseObject, withoutManagedFields(a.Object(t))) {
				t.Errorf("the event is %+v", e)
			}
			for _, path := range []string{path, path + "/a"} {
				a, e := l.Send(t, c.Client, http.MethodGet, path, nil, nil)
				if !reflect.DeepEqual(e.ResponseObject, withoutManagedFields(a.Object(t))) {
					t.Errorf("the event is %+v", e)
				}
			}
		}},
		{Statement: "pod security annotates the event with what it enforced and what it would have denied", Proof: func(t *testing.T, c *kit.Cluster) {
			namespace := c.Namespace + "-audited"
			c.Post(t, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{
				"name": namespace, "labels": map[string]any{"pod-security.kubernetes.io/audit": "baseline"},
			}}).Created(t)
			path := "/api/v1/namespaces/" + namespace
			c.Post(t, path+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "a"}}).Created(t)
			spec := podTemplate()["spec"].(map[string]any)
			spec["serviceAccountName"], spec["hostNetwork"] = "a", true
			a, e := l.Send(t, c.Client, http.MethodPost, path+"/pods", nil, map[string]any{
				"metadata": map[string]any{"name": "p"}, "spec": spec,
			})
			a.Created(t)
			kit.WantAnnotations(t, e, map[string]string{
				"pod-security.kubernetes.io/enforce-policy":   "privileged:latest",
				"pod-security.kubernetes.io/audit-violations": `would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`,
			})
		}},
		{Statement: "a ValidatingAdmissionPolicy adds its annotations, and what it would have denied", Proof: func(t *testing.T, c *kit.Cluster) {
			const group = "/apis/admissionregistration.k8s.io/v1/"
			c.Post(t, group+"validatingadmissionpolicies", map[string]any{
				"metadata": map[string]any{"name": c.Namespace},
				"spec": map[string]any{
					"matchConstraints": map[string]any{
						"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": c.Namespace}},
						"resourceRules":     []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"configmaps"}}},
					},
					"validations":      []any{map[string]any{"expression": "false", "message": "never"}},
					"auditAnnotations": []any{map[string]any{"key": "name", "valueExpression": "'it is ' + object.metadata.name"}},
				},
			}).Created(t)
			c.Post(t, group+"validatingadmissionpolicybindings", map[string]any{
				"metadata": map[string]any{"name": c.Namespace},
				"spec":     map[string]any{"policyName": c.Namespace, "validationActions": []string{"Audit"}},
			}).Created(t)

			var e kit.AuditEvent
			harness.Eventually(t, "the policy is in effect", func() bool {
				_, e = l.Send(t, c.Client, http.MethodPost, c.Path("v1", "configmaps")+"?dryRun=All", nil, kit.ConfigMap("a", nil))
				return e.Annotations[c.Namespace+"/name"] != ""
			})
			kit.WantAnnotations(t, e, map[string]string{c.Namespace + "/name": "it is a"})
			if failure := e.Annotations["validation.policy.admission.k8s.io/validation_failure"]; !strings.Contains(failure, `"message":"never"`) {
				t.Errorf("the annotations are %v", e.Annotations)
			}
		}},
	}
}

// podTemplate returns a template accepted by all admission plugins.
func podTemplate() map[string]any {
	return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "registry.example.com/c"}}}}
}
