package concepts

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Admission webhooks, and admission policies in CEL.
func TestAdmission(t *testing.T) {
	prove(t, nil, slices.Concat(webhookCalls, webhookAnswers, webhookMatches, validatingPolicies, mutatingPolicies)...)
}

// label answers with a patch that gives the object a label.
func label(name string) response {
	return func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Object.Raw, &object); err != nil {
			panic(err)
		}
		if object.Labels == nil {
			return change(`[{"op":"add","path":"/metadata/labels","value":{"` + name + `":"set"}}]`)(r)
		}
		return change(`[{"op":"add","path":"/metadata/labels/` + name + `","value":"set"}]`)(r)
	}
}

var webhookCalls = []promise{
	{"mutating webhooks change what is stored, one after the other, by the names of their configurations and then in their order", func(t *testing.T, c *cluster) {
		first := reviews(t, change(`[{"op":"add","path":"/data","value":{"by":"a"}}]`))
		second := reviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var object struct{ Data map[string]string }
			if err := json.Unmarshal(r.Object.Raw, &object); err != nil {
				panic(err)
			}
			return change(`[{"op":"replace","path":"/data/by","value":"` + object.Data["by"] + `b"}]`)(r)
		})
		c.activate(t, "Mutating", "-z", c.webhook("z1.example.com", second, ""))
		c.activate(t, "Mutating", "-a", c.webhook("a1.example.com", first, ""), c.webhook("a2.example.com", second, ""))
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated).has(t, `{"by":"abb"}`, "data")
		c.get(t, c.path("v1", "configmaps", "a")).has(t, `{"by":"abb"}`, "data")
	}},
	{"validating webhooks see the object as the mutating ones left it, and as it is defaulted, in its version", func(t *testing.T, c *cluster) {
		h := reviews(t, allow)
		rules := "rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]"
		c.activate(t, "Mutating", "", c.webhook("m.example.com", reviews(t, label("mutated")), rules))
		c.activate(t, "Validating", "", c.webhook("v.example.com", h, rules))
		c.post(t, c.path("apps/v1", "deployments"), deployment("d")).want(t, http.StatusCreated)
		for _, part := range []string{`"mutated":"set"`, `"type":"RollingUpdate"`, `"imagePullPolicy":"Always"`, `"apiVersion":"apps/v1"`, `"kind":"Deployment"`} {
			if object := string(h.one(t).Object.Raw); !strings.Contains(object, part) {
				t.Errorf("the object lacks %s:\n%s", part, object)
			}
		}
	}},
	{"a webhook with reinvocationPolicy IfNeeded is called again when a later one has changed the object", func(t *testing.T, c *cluster) {
		again, once, later := reviews(t, label("again")), reviews(t, label("once")), reviews(t, label("later"))
		c.activate(t, "Mutating", "", c.webhook("a.example.com", again, "reinvocationPolicy: IfNeeded"),
			c.webhook("b.example.com", once, ""), c.webhook("c.example.com", later, ""))
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated).
			has(t, `{"again":"set","later":"set","once":"set"}`, "metadata", "labels")
		if a, o, l := len(again.requests()), len(once.requests()), len(later.requests()); a != 2 || o != 1 || l != 1 {
			t.Errorf("the webhooks were called %d, %d and %d times", a, o, l)
		}
	}},
	{"a request for a webhook says who does what to which object", func(t *testing.T, c *cluster) {
		h := reviews(t, allow)
		c.activate(t, "Validating", "", c.webhook("a.example.com", h, ""))
		as := header{"Impersonate-User", "jane", "Impersonate-Group", "system:masters", "Impersonate-Uid", "u1",
			"Impersonate-Extra-scopes", "view"}
		c.send(t, http.MethodPost, c.path("v1", "configmaps")+"?fieldManager=me", as,
			configMap("a", map[string]string{"k": "1"})).want(t, http.StatusCreated)
		r := h.one(t)
		equal(t, []any{r.UserInfo.Username, r.UserInfo.UID, r.UserInfo.Groups, r.UserInfo.Extra["scopes"].String()},
			[]any{"jane", "u1", []string{"system:masters", "system:authenticated"}, "[view]"})
		equal(t, []any{r.Kind, r.Resource, *r.RequestKind, *r.RequestResource, r.SubResource, r.RequestSubResource,
			r.Name, r.Namespace, r.Operation, *r.DryRun},
			[]any{metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
				metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
				metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, metav1.GroupVersionResource{Version: "v1",
					Resource: "configmaps"},
				"", "", "a", c.namespace, admissionv1.Create, false})
		if r.UID == "" || string(r.OldObject.Raw) != "null" && len(r.OldObject.Raw) != 0 {
			t.Errorf("the uid is %q, the old object %s", r.UID, r.OldObject.Raw)
		}
		if options := string(r.Options.Raw); !strings.Contains(options, `"kind":"CreateOptions"`) || !strings.Contains(options, `"fieldManager":"me"`) {
			t.Errorf("the options are %s", options)
		}
	}},
	{"an update and a patch bring the new object and the old one", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), configMap("a", map[string]string{"k": "1"})).want(t, http.StatusCreated)
		h := reviews(t, allow)
		c.activate(t, "Validating", "", c.webhook("a.example.com", h, ""))
		c.put(t, c.path("v1", "configmaps", "a"), configMap("a", map[string]string{"k": "2"})).want(t, http.StatusOK)
		c.patch(t, mergePatch, c.path("v1", "configmaps", "a"), `{"data":{"k":"3"}}`).want(t, http.StatusOK)
		c.send(t, http.MethodPatch, c.path("v1", "configmaps", "a")+"?fieldManager=m&force=true",
			header{"Content-Type", applyPatch}, configMap("a", map[string]string{"k": "4"})).want(t, http.StatusOK)
		c.send(t, http.MethodPatch, c.path("v1", "configmaps", "b")+"?fieldManager=m", header{"Content-Type", applyPatch},
			configMap("b", nil)).want(t, http.StatusCreated)
		equal(t, h.called(), []string{"UPDATE configmaps a", "UPDATE configmaps a", "UPDATE configmaps a",
			"CREATE configmaps b"})
		for i, want := range []struct{ before, after, options string }{{"1", "2", "UpdateOptions"}, {"2", "3", "UpdateOptions"}, {"3", "4", "UpdateOptions"}} {
			r := h.requests()[i]
			if !strings.Contains(string(r.OldObject.Raw), `"k":"`+want.before+`"`) || !strings.Contains(string(r.Object.Raw), `"k":"`+want.after+`"`) ||
				!strings.Contains(string(r.Options.Raw), want.options) {
				t.Errorf("the request has %s\nand %s\nwith %s", r.OldObject.Raw, r.Object.Raw, r.Options.Raw)
			}
		}
	}},
	{"a delete brings the old object, for each object of a collection", func(t *testing.T, c *cluster) {
		for _, name := range []string{"a", "b", "c"} {
			c.post(t, c.path("v1", "configmaps"), with(configMap(name, map[string]string{"k": name}), "mine", "metadata",
				"labels", "of")).want(t, http.StatusCreated)
		}
		h := reviews(t, allow)
		c.activate(t, "Validating", "", c.webhook("a.example.com", h, ""))
		c.delete(t, c.path("v1", "configmaps", "a")).want(t, http.StatusOK)
		c.delete(t, c.path("v1", "configmaps")+"?labelSelector=of%3Dmine").want(t, http.StatusOK)
		var deleted []string
		for _, r := range h.requests() {
			var old struct{ Data map[string]string }
			if err := json.Unmarshal(r.OldObject.Raw, &old); err != nil {
				t.Fatal(err)
			}
			deleted = append(deleted, string(r.Operation)+" "+r.Name+" "+old.Data["k"])
			if len(r.Object.Raw) > 0 && string(r.Object.Raw) != "null" {
				t.Errorf("there is a new object: %s", r.Object.Raw)
			}
		}
		slices.Sort(deleted)
		equal(t, deleted, []string{"DELETE  b", "DELETE  c",
			"DELETE a a"}) // for a collection without the name, as in kube-apiserver
	}},
	{"CONNECT brings the options of the connection", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "pods"), pod("p")).want(t, http.StatusCreated)
		h := reviews(t, deny("no way in"))
		c.activate(t, "Validating", "", c.webhook("a.example.com", h, `{objectSelector: {},
			rules: [{operations: [CONNECT], apiGroups: [""], apiVersions: [v1], resources: ["pods/*"]}]}`)) // options have no labels, so that any other selector would not match them
		c.post(t, c.path("v1", "pods", "p", "exec")+"?command=sh&container=c", nil).
			refused(t, http.StatusBadRequest, "", `admission webhook "a.example.com" denied the request: no way in`)
		r := h.one(t)
		equal(t, []string{string(r.Operation), r.SubResource, r.Name, r.Kind.Kind},
			[]string{"CONNECT", "exec", "p", "PodExecOptions"})
		if !strings.Contains(string(r.Object.Raw), `"command":["sh"]`) {
			t.Errorf("the options are %s", r.Object.Raw)
		}
	}},
	{"reads are not sent to webhooks", func(t *testing.T, c *cluster) {
		h := reviews(t, deny("no"))
		c.activate(t, "Validating", "", c.webhook("a.example.com", h,
			`rules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: ["*/*"], scope: Namespaced}]`))
		c.get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
		c.get(t, c.path("v1", "secrets", "none")).want(t, http.StatusNotFound)
		c.watch(t, c.path("v1", "secrets")+"?watch=true&timeoutSeconds=1").stop()
		if calls := h.called(); slices.ContainsFunc(calls, func(call string) bool {
			return !strings.Contains(call, "kube-root-ca.crt") && !strings.Contains(call, "serviceaccounts")
		}) {
			t.Errorf("the webhook was called: %q", calls)
		}
		c.post(t, c.path("v1", "secrets"), manifest("{metadata: {name: s}}")).want(t, http.StatusBadRequest)
	}},
	{"a webhook that accepts reviews of v1beta1 only gets those", func(t *testing.T, c *cluster) {
		h := reviews(t, deny("beta"))
		c.activate(t, "Validating", "", c.webhook("a.example.com", h, "admissionReviewVersions: [v1beta1]"))
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).
			refused(t, http.StatusBadRequest, "", `admission webhook "a.example.com" denied the request: beta`)
	}},
	{"a dry run is told as one", func(t *testing.T, c *cluster) {
		h := reviews(t, label("mutated"))
		c.activate(t, "Mutating", "", c.webhook("a.example.com", h, "sideEffects: NoneOnDryRun"))
		c.post(t, c.path("v1", "configmaps")+"?dryRun=All", configMap("a", nil)).want(t, http.StatusCreated).
			has(t, `{"mutated":"set"}`, "metadata", "labels")
		if !*h.one(t).DryRun {
			t.Error("dryRun is false")
		}
	}},
	{"custom resources pass webhooks, and what these make of them is pruned, defaulted and validated", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", "spec: {type: object, properties: {a: {type: string}, b: {type: string, default: z}}}"))
		h := reviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			value := `"x"`
			if r.Name == "bad" {
				value = "5"
			}
			return change(`[{"op":"add","path":"/spec","value":{"a":` + value + `,"unknown":1}}]`)(r)
		})
		c.activate(t, "Mutating", "", c.webhook("a.example.com", h,
			"rules: [{operations: [CREATE], apiGroups: ["+w.group+"], apiVersions: [v1], resources: [widgets]}]"))
		w.create(t, "a", "{}").want(t, http.StatusCreated).has(t, `{"a":"x","b":"z"}`, "spec")
		w.create(t, "bad", "{}").invalid(t, "spec.a: Invalid value")
	}},
	{"configurations and policies themselves are never sent to webhooks", func(t *testing.T, c *cluster) {
		// Cluster-scoped objects match any namespaceSelector, so that this webhook is for objects with a label.
		h := reviews(t, deny("no"))
		c.activate(t, "Validating", "", c.webhook("a.example.com", h,
			`{rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}],
			objectSelector: {matchLabels: {of: `+c.namespace+`}}}`))
		for resource, body := range map[string]string{
			"validatingwebhookconfigurations":   "kind: ValidatingWebhookConfiguration",
			"mutatingwebhookconfigurations":     "kind: MutatingWebhookConfiguration",
			"validatingadmissionpolicybindings": "{kind: ValidatingAdmissionPolicyBinding, spec: {policyName: none, validationActions: [Deny]}}",
			"mutatingadmissionpolicybindings":   "{kind: MutatingAdmissionPolicyBinding, spec: {policyName: none}}",
		} {
			object := with(manifest("%s", body), map[string]any{"name": c.namespace + "-x",
				"labels": map[string]any{"of": c.namespace}}, "metadata")
			object["apiVersion"] = "admissionregistration.k8s.io/v1"
			c.post(t, admissionRegistration+resource, object).want(t, http.StatusCreated)
			c.delete(t, admissionRegistration+resource+"/"+c.namespace+"-x").want(t, http.StatusOK)
		}
		role := manifest("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s, labels: {of: %[1]s}}}", c.namespace)
		c.post(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).
			refused(t, http.StatusBadRequest, "", "denied the request: no")
	}},
	{"a webhook is found by its Service", func(t *testing.T, c *cluster) {
		h := serveHook(t, "hook."+c.namespace+".svc", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		address, err := url.Parse(h.URL)
		if err != nil {
			t.Fatal(err)
		}
		c.post(t, c.path("v1", "services"), manifest("{apiVersion: v1, kind: Service, metadata: {name: hook}, spec: {type: ExternalName, externalName: localhost}}")).want(t, http.StatusCreated)
		w := c.webhook("a.example.com", h, "")
		w["clientConfig"] = with(manifest("{service: {name: hook, namespace: %s, path: /path, port: %s}}", c.namespace,
			address.Port()), h.ca, "caBundle")
		missing := c.webhook("b.example.com", h, "clientConfig: {service: {name: none, namespace: "+c.namespace+"}}\nobjectSelector: {matchLabels: {missing: x}}")
		c.activate(t, "Validating", "", w)
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).
			refused(t, http.StatusInternalServerError, "InternalError",
				`failed calling webhook "a.example.com": failed to call webhook: the server responded with the status code 418`)
		c.activate(t, "Mutating", "", missing)
		c.post(t, c.path("v1", "configmaps"), with(configMap("b", nil), "x", "metadata", "labels", "missing")).
			refused(t, http.StatusInternalServerError, "InternalError",
				`failed calling webhook "b.example.com": failed to call webhook: Post "https://none.`+c.namespace+`.svc:443/?timeout=10s": service "none" not found`)
	}},
}
