package concepts

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// bodies are the promises on what an event has of the bodies of a request and its answer, and on what others add to it.
func (l auditLog) bodies() []promise {
	return []promise{
		{"at level Metadata no body is recorded", func(t *testing.T, c *cluster) {
			secret := map[string]any{"metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"key": "hidden"}}
			for _, r := range []struct{ method, path string }{
				{http.MethodPost, c.path("v1", "secrets")}, {http.MethodGet, c.path("v1", "secrets")}, {http.MethodGet, c.path("v1", "secrets", "s")},
			} {
				a, e := l.send(t, c.client, r.method, r.path, nil, secret)
				a.want(t, http.StatusOK, http.StatusCreated)
				if e.Level != "Metadata" || e.RequestObject != nil || e.ResponseObject != nil {
					t.Errorf("the event of %s is %+v", r.path, e)
				}
			}
		}},
		{"at level Request the request's object is recorded, as it came and with defaults, and not the answer's", func(t *testing.T, c *cluster) {
			service := map[string]any{"metadata": map[string]any{"name": "s"}, "spec": map[string]any{"ports": []any{map[string]any{"port": 80}}}}
			a, e := l.send(t, c.client, http.MethodPost, c.path("v1", "services"), nil, service)
			a.want(t, http.StatusCreated)
			port, _, err := unstructured.NestedString(object(e.RequestObject), "spec", "sessionAffinity")
			if err != nil || port != "None" || e.ResponseObject != nil {
				t.Errorf("the event is %+v, %v", e, err)
			}
			if _, e := l.send(t, c.client, http.MethodGet, c.path("v1", "services", "s"), nil, nil); e.RequestObject != nil || e.ResponseObject != nil {
				t.Errorf("the event of a get is %+v", e)
			}
		}},
		{"at level RequestResponse both objects are recorded, without managed fields if the policy says so", func(t *testing.T, c *cluster) {
			for _, r := range []struct{ method, path string }{
				{http.MethodPost, c.path("v1", "configmaps")}, {http.MethodPut, c.path("v1", "configmaps", "a")},
			} {
				a, e := l.send(t, c.client, r.method, r.path, nil, configMap("a", map[string]string{"key": r.method}))
				a.want(t, http.StatusOK, http.StatusCreated)
				value, _, _ := unstructured.NestedString(object(e.RequestObject), "data", "key")
				if value != r.method || !reflect.DeepEqual(e.ResponseObject, withoutManagedFields(a.object(t))) {
					t.Errorf("%s is recorded as %v and %v", r.method, e.RequestObject, e.ResponseObject)
				}
			}
		}},
		{"what is read is recorded, whatever form the client gets it in", func(t *testing.T, c *cluster) {
			made := c.post(t, c.path("v1", "configmaps"), configMap("a", map[string]string{"key": "value"})).want(t, http.StatusCreated)
			// At one revision, since others write meanwhile.
			only := "?fieldSelector=metadata.name%3Da&resourceVersionMatch=Exact&resourceVersion=" + made.version(t)
			for _, path := range []string{c.path("v1", "configmaps", "a"), c.path("v1", "configmaps") + only} {
				want := withoutManagedFields(c.get(t, path).object(t))
				for _, form := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "application/json;pretty=1"} {
					a, e := l.send(t, c.client, http.MethodGet, path, header{"Accept", form}, nil)
					a.want(t, http.StatusOK)
					if !reflect.DeepEqual(e.ResponseObject, want) {
						t.Errorf("%s as %s is recorded as %v\ninstead of %v", path, form, e.ResponseObject, want)
					}
				}
			}
			for kind, form := range map[string]string{
				"Table":                     "application/json;as=Table;v=v1;g=meta.k8s.io",
				"PartialObjectMetadataList": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
			} {
				a, e := l.send(t, c.client, http.MethodGet, c.path("v1", "configmaps")+only, header{"Accept", form}, nil)
				a.want(t, http.StatusOK)
				if e.ResponseObject["kind"] != kind {
					t.Errorf("%s is recorded as %v", kind, e.ResponseObject)
				}
			}
		}},
		{"managed fields are recorded where the rule says so against the policy", func(t *testing.T, c *cluster) {
			path := c.path("v1", "podtemplates")
			c.post(t, path, map[string]any{"metadata": map[string]any{"name": "a"}, "template": podTemplate()}).want(t, http.StatusCreated)
			for _, path := range []string{path, path + "/a"} {
				a, e := l.send(t, c.client, http.MethodGet, path, nil, nil)
				if !strings.Contains(string(a.Body), "managedFields") || !reflect.DeepEqual(e.ResponseObject, a.object(t)) {
					t.Errorf("%s is recorded as %v", path, e.ResponseObject)
				}
			}
		}},
		{"a patch is recorded as it came", func(t *testing.T, c *cluster) {
			path := c.path("v1", "configmaps", "a")
			c.post(t, c.path("v1", "configmaps"), configMap("a", map[string]string{"key": "value"})).want(t, http.StatusCreated)
			for kind, patch := range map[string]any{
				mergePatch:     map[string]any{"data": map[string]any{"merge": "x"}},
				strategicPatch: map[string]any{"data": map[string]any{"strategic": "x"}},
				jsonPatch:      []any{map[string]any{"op": "add", "path": "/data/json", "value": "x"}},
			} {
				a, e := l.send(t, c.client, http.MethodPatch, path, header{"Content-Type", kind}, patch)
				a.want(t, http.StatusOK)
				if e.Verb != "patch" || !reflect.DeepEqual(e.RequestObject, patch) || !reflect.DeepEqual(e.ResponseObject, withoutManagedFields(a.object(t))) {
					t.Errorf("%s is recorded as %v and %v", kind, e.RequestObject, e.ResponseObject)
				}
			}
			applied := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"applied": "x"}}
			a, e := l.send(t, c.client, http.MethodPatch, path+"?fieldManager=prover", header{"Content-Type", applyPatch}, applied)
			a.want(t, http.StatusOK)
			if !reflect.DeepEqual(e.RequestObject, applied) {
				t.Errorf("what was applied is recorded as %v", e.RequestObject)
			}
		}},
		{"a deletion is recorded with its options and what it answers", func(t *testing.T, c *cluster) {
			c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
			a, e := l.send(t, c.client, http.MethodDelete, c.path("v1", "configmaps", "a"), nil, map[string]any{"propagationPolicy": "Background"})
			a.want(t, http.StatusOK)
			if object(e.RequestObject)["propagationPolicy"] != "Background" || e.ResponseObject["kind"] != "Status" || e.ResponseObject["status"] != "Success" {
				t.Errorf("the event is %+v", e)
			}
			a, e = l.send(t, c.client, http.MethodDelete, c.path("v1", "configmaps")+"?labelSelector=none", nil, nil)
			a.want(t, http.StatusOK)
			if e.Verb != "deletecollection" || e.ResponseObject["kind"] != "ConfigMapList" {
				t.Errorf("the event is %+v", e)
			}
		}},
		{"the Status of a failure is recorded", func(t *testing.T, c *cluster) {
			a, e := l.send(t, c.client, http.MethodGet, c.path("v1", "configmaps", "missing"), nil, nil)
			a.want(t, http.StatusNotFound)
			if !reflect.DeepEqual(e.ResponseObject, a.object(t)) {
				t.Errorf("the event is %+v", e)
			}
		}},
		{"a subresource is recorded as one", func(t *testing.T, c *cluster) {
			c.post(t, c.path("v1", "serviceaccounts"), map[string]any{"metadata": map[string]any{"name": "a"}}).want(t, http.StatusCreated)
			a, e := l.send(t, c.client, http.MethodPost, c.path("v1", "serviceaccounts", "a", "token"), nil, map[string]any{})
			a.want(t, http.StatusCreated)
			if o := e.ObjectRef; o == nil || o.Resource != "serviceaccounts" || o.Subresource != "token" || o.Name != "a" || e.ResponseObject != nil {
				t.Errorf("the event is %+v", e)
			}
		}},
		{"custom resources are recorded with their bodies", func(t *testing.T, c *cluster) {
			plural := "audited" + strings.ReplaceAll(c.namespace, "-", "")
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
			c.post(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).want(t, http.StatusCreated)
			path := c.path("audit.example.com/v1", plural)
			eventually(t, "the custom resource is served", func() bool { return c.get(t, path).Code == http.StatusOK })

			custom := map[string]any{"apiVersion": "audit.example.com/v1", "kind": "Audited", "metadata": map[string]any{"name": "a"}, "spec": "text"}
			a, e := l.send(t, c.client, http.MethodPost, path, nil, custom)
			a.want(t, http.StatusCreated)
			if object(e.RequestObject)["spec"] != "text" || !reflect.DeepEqual(e.ResponseObject, withoutManagedFields(a.object(t))) {
				t.Errorf("the event is %+v", e)
			}
			for _, path := range []string{path, path + "/a"} {
				a, e := l.send(t, c.client, http.MethodGet, path, nil, nil)
				if !reflect.DeepEqual(e.ResponseObject, withoutManagedFields(a.object(t))) {
					t.Errorf("the event is %+v", e)
				}
			}
		}},
		{"an event says that the version is deprecated", func(t *testing.T, c *cluster) {
			_, e := l.send(t, c.client, http.MethodGet, c.path("v1", "endpoints"), nil, nil)
			wantAnnotations(t, e, map[string]string{"k8s.io/deprecated": "true"})
		}},
		{"pod security tells in the event what it enforced and what would have been refused", func(t *testing.T, c *cluster) {
			namespace := c.namespace + "-audited"
			c.post(t, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{
				"name": namespace, "labels": map[string]any{"pod-security.kubernetes.io/audit": "baseline"},
			}}).want(t, http.StatusCreated)
			path := "/api/v1/namespaces/" + namespace
			c.post(t, path+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "a"}}).want(t, http.StatusCreated)
			spec := podTemplate()["spec"].(map[string]any)
			spec["serviceAccountName"], spec["hostNetwork"] = "a", true
			a, e := l.send(t, c.client, http.MethodPost, path+"/pods", nil, map[string]any{
				"metadata": map[string]any{"name": "p"}, "spec": spec,
			})
			a.want(t, http.StatusCreated)
			wantAnnotations(t, e, map[string]string{
				"pod-security.kubernetes.io/enforce-policy":   "privileged:latest",
				"pod-security.kubernetes.io/audit-violations": `would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`,
			})
		}},
		{"a ValidatingAdmissionPolicy adds annotations, and what it would have refused", func(t *testing.T, c *cluster) {
			const group = "/apis/admissionregistration.k8s.io/v1/"
			c.post(t, group+"validatingadmissionpolicies", map[string]any{
				"metadata": map[string]any{"name": c.namespace},
				"spec": map[string]any{
					"matchConstraints": map[string]any{
						"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": c.namespace}},
						"resourceRules":     []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"configmaps"}}},
					},
					"validations":      []any{map[string]any{"expression": "false", "message": "never"}},
					"auditAnnotations": []any{map[string]any{"key": "name", "valueExpression": "'it is ' + object.metadata.name"}},
				},
			}).want(t, http.StatusCreated)
			c.post(t, group+"validatingadmissionpolicybindings", map[string]any{
				"metadata": map[string]any{"name": c.namespace},
				"spec":     map[string]any{"policyName": c.namespace, "validationActions": []string{"Audit"}},
			}).want(t, http.StatusCreated)

			var e auditEvent
			eventually(t, "the policy is in force", func() bool {
				_, e = l.send(t, c.client, http.MethodPost, c.path("v1", "configmaps")+"?dryRun=All", nil, configMap("a", nil))
				return e.Annotations[c.namespace+"/name"] != ""
			})
			wantAnnotations(t, e, map[string]string{c.namespace + "/name": "it is a"})
			if failure := e.Annotations["validation.policy.admission.k8s.io/validation_failure"]; !strings.Contains(failure, `"message":"never"`) {
				t.Errorf("the annotations are %v", e.Annotations)
			}
		}},
	}
}

// object is a body that is one.
func object(body any) map[string]any {
	o, _ := body.(map[string]any)
	return o
}

// podTemplate is one that every admission takes.
func podTemplate() map[string]any {
	return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "registry.example.com/c"}}}}
}
