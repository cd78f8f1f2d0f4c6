package admission

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// Admission webhooks, and admission policies in CEL.
func TestAdmission(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(admission, admissionOfPods, webhookCalls, webhookAnswers, webhookMatches, validatingPolicies, mutatingPolicies)...)
}

// label responds with a patch that adds a label to the object.
func label(name string) kit.Responder {
	return func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Object.Raw, &object); err != nil {
			panic(err)
		}
		if object.Labels == nil {
			return kit.PatchRequest(`[{"op":"add","path":"/metadata/labels","value":{"` + name + `":"set"}}]`)(r)
		}
		return kit.PatchRequest(`[{"op":"add","path":"/metadata/labels/` + name + `","value":"set"}]`)(r)
	}
}

var webhookCalls = []kit.Promise{
	{Statement: "mutating webhooks change what is stored in sequence, by the names of their configurations and then in their order", Proof: func(t *testing.T, c *kit.Cluster) {
		first := kit.ServeReviews(t, kit.PatchRequest(`[{"op":"add","path":"/data","value":{"by":"a"}}]`))
		second := kit.ServeReviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var object struct{ Data map[string]string }
			if err := json.Unmarshal(r.Object.Raw, &object); err != nil {
				panic(err)
			}
			return kit.PatchRequest(`[{"op":"replace","path":"/data/by","value":"` + object.Data["by"] + `b"}]`)(r)
		})
		c.ActivateWebhooks(t, "Mutating", "-z", c.WebhookEntry("z1.example.com", second, ""))
		c.ActivateWebhooks(t, "Mutating", "-a", c.WebhookEntry("a1.example.com", first, ""), c.WebhookEntry("a2.example.com", second, ""))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t).HasField(t, `{"by":"abb"}`, "data")
		c.Get(t, c.Path("v1", "configmaps", "a")).HasField(t, `{"by":"abb"}`, "data")
	}},
	{Statement: "validating webhooks receive the object after mutation and defaulting, in its version", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, kit.AllowRequest)
		rules := "rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]"
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("m.example.com", kit.ServeReviews(t, label("mutated")), rules))
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("v.example.com", h, rules))
		c.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("d")).Created(t)
		for _, part := range []string{`"mutated":"set"`, `"type":"RollingUpdate"`, `"imagePullPolicy":"Always"`, `"apiVersion":"apps/v1"`, `"kind":"Deployment"`} {
			if object := string(h.OnlyRequest(t).Object.Raw); !strings.Contains(object, part) {
				t.Errorf("the object lacks %s:\n%s", part, object)
			}
		}
	}},
	{Statement: "a webhook with reinvocationPolicy IfNeeded is called again when a later one has changed the object", Proof: func(t *testing.T, c *kit.Cluster) {
		again, once, later := kit.ServeReviews(t, label("again")), kit.ServeReviews(t, label("once")), kit.ServeReviews(t, label("later"))
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", again, "reinvocationPolicy: IfNeeded"),
			c.WebhookEntry("b.example.com", once, ""), c.WebhookEntry("c.example.com", later, ""))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t).
			HasField(t, `{"again":"set","later":"set","once":"set"}`, "metadata", "labels")
		if a, o, l := len(again.Requests()), len(once.Requests()), len(later.Requests()); a != 2 || o != 1 || l != 1 {
			t.Errorf("the webhooks were called %d, %d and %d times", a, o, l)
		}
	}},
	{Statement: "a webhook's request contains the user, the operation and the object", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, kit.AllowRequest)
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, ""))
		as := kit.Header{"Impersonate-User", "jane", "Impersonate-Group", "system:masters", "Impersonate-Uid", "u1",
			"Impersonate-Extra-scopes", "view"}
		c.Send(t, http.MethodPost, c.Path("v1", "configmaps")+"?fieldManager=me", as,
			kit.ConfigMap("a", map[string]string{"k": "1"})).Created(t)
		r := h.OnlyRequest(t)
		kit.Equal(t, []any{r.UserInfo.Username, r.UserInfo.UID, r.UserInfo.Groups, r.UserInfo.Extra["scopes"].String()},
			[]any{"jane", "u1", []string{"system:masters", "system:authenticated"}, "[view]"})
		kit.Equal(t, []any{r.Kind, r.Resource, *r.RequestKind, *r.RequestResource, r.SubResource, r.RequestSubResource,
			r.Name, r.Namespace, r.Operation, *r.DryRun},
			[]any{metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
				metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
				metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, metav1.GroupVersionResource{Version: "v1",
					Resource: "configmaps"},
				"", "", "a", c.Namespace, admissionv1.Create, false})
		if r.UID == "" || string(r.OldObject.Raw) != "null" && len(r.OldObject.Raw) != 0 {
			t.Errorf("the uid is %q, the old object %s", r.UID, r.OldObject.Raw)
		}
		if options := string(r.Options.Raw); !strings.Contains(options, `"kind":"CreateOptions"`) || !strings.Contains(options, `"fieldManager":"me"`) {
			t.Errorf("the options are %s", options)
		}
	}},
	{Statement: "an update or patch contains the new object and the old one", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", map[string]string{"k": "1"})).Created(t)
		h := kit.ServeReviews(t, kit.AllowRequest)
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, ""))
		c.Put(t, c.Path("v1", "configmaps", "a"), kit.ConfigMap("a", map[string]string{"k": "2"})).OK(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "configmaps", "a"), `{"data":{"k":"3"}}`).OK(t)
		c.Send(t, http.MethodPatch, c.Path("v1", "configmaps", "a")+"?fieldManager=m&force=true",
			kit.Header{"Content-Type", kit.ApplyPatch}, kit.ConfigMap("a", map[string]string{"k": "4"})).OK(t)
		c.Send(t, http.MethodPatch, c.Path("v1", "configmaps", "b")+"?fieldManager=m", kit.Header{"Content-Type", kit.ApplyPatch},
			kit.ConfigMap("b", nil)).Created(t)
		kit.Equal(t, h.Calls(), []string{"UPDATE configmaps a", "UPDATE configmaps a", "UPDATE configmaps a",
			"CREATE configmaps b"})
		for i, want := range []struct{ before, after, options string }{{"1", "2", "UpdateOptions"}, {"2", "3", "UpdateOptions"}, {"3", "4", "UpdateOptions"}} {
			r := h.Requests()[i]
			if !strings.Contains(string(r.OldObject.Raw), `"k":"`+want.before+`"`) || !strings.Contains(string(r.Object.Raw), `"k":"`+want.after+`"`) ||
				!strings.Contains(string(r.Options.Raw), want.options) {
				t.Errorf("the request has %s\nand %s\nwith %s", r.OldObject.Raw, r.Object.Raw, r.Options.Raw)
			}
		}
	}},
	{Statement: "a delete contains the old object; deleting a collection calls the webhook for each object", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap(name, map[string]string{"k": name}), "mine", "metadata",
				"labels", "of")).Created(t)
		}
		h := kit.ServeReviews(t, kit.AllowRequest)
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, ""))
		c.Delete(t, c.Path("v1", "configmaps", "a")).OK(t)
		c.Delete(t, c.Path("v1", "configmaps")+"?labelSelector=of%3Dmine").OK(t)
		var deleted []string
		for _, r := range h.Requests() {
			var old struct{ Data map[string]string }
			harness.Must(t, json.Unmarshal(r.OldObject.Raw, &old))
			deleted = append(deleted, string(r.Operation)+" "+r.Name+" "+old.Data["k"])
			if len(r.Object.Raw) > 0 && string(r.Object.Raw) != "null" {
				t.Errorf("there is a new object: %s", r.Object.Raw)
			}
		}
		slices.Sort(deleted)
		kit.Equal(t, deleted, []string{"DELETE  b", "DELETE  c",
			"DELETE a a"}) // for a collection without the name, like kube-apiserver
	}},
	{Statement: "CONNECT contains the options of the connection", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "pods"), kit.Pod("p")).Created(t)
		h := kit.ServeReviews(t, kit.DenyRequest("no way in"))
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, `{objectSelector: {},
			rules: [{operations: [CONNECT], apiGroups: [""], apiVersions: [v1], resources: ["pods/*"]}]}`)) // options have no labels, so no other selector would match them
		c.Post(t, c.Path("v1", "pods", "p", "exec")+"?command=sh&container=c", nil).
			Refused(t, http.StatusBadRequest, "", `admission webhook "a.example.com" denied the request: no way in`)
		r := h.OnlyRequest(t)
		kit.Equal(t, []string{string(r.Operation), r.SubResource, r.Name, r.Kind.Kind},
			[]string{"CONNECT", "exec", "p", "PodExecOptions"})
		if !strings.Contains(string(r.Object.Raw), `"command":["sh"]`) {
			t.Errorf("the options are %s", r.Object.Raw)
		}
	}},
	{Statement: "reads are not sent to webhooks", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, kit.DenyRequest("no"))
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h,
			`rules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: ["*/*"], scope: Namespaced}]`))
		c.Get(t, c.Path("v1", "configmaps")).OK(t)
		c.Get(t, c.Path("v1", "secrets", "none")).Want(t, http.StatusNotFound)
		c.Watch(t, c.Path("v1", "secrets")+"?watch=true&timeoutSeconds=1").Stop()
		if calls := h.Calls(); len(calls) > 0 {
			t.Errorf("the webhook was called: %q", calls)
		}
		c.Post(t, c.Path("v1", "secrets"), kit.Manifest("{metadata: {name: s}}")).Want(t, http.StatusBadRequest)
	}},
	{Statement: "a webhook that only accepts v1beta1 reviews receives those", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, kit.DenyRequest("beta"))
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, "admissionReviewVersions: [v1beta1]"))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).
			Refused(t, http.StatusBadRequest, "", `admission webhook "a.example.com" denied the request: beta`)
	}},
	{Statement: "custom resources are sent to webhooks, and the result is pruned, defaulted and validated", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "spec: {type: object, properties: {a: {type: string}, b: {type: string, default: z}}}"))
		h := kit.ServeReviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			value := `"x"`
			if r.Name == "bad" {
				value = "5"
			}
			return kit.PatchRequest(`[{"op":"add","path":"/spec","value":{"a":` + value + `,"unknown":1}}]`)(r)
		})
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", h,
			"rules: [{operations: [CREATE], apiGroups: ["+w.Group+"], apiVersions: [v1], resources: [widgets]}]"))
		w.Create(t, "a", "{}").Created(t).HasField(t, `{"a":"x","b":"z"}`, "spec")
		w.Create(t, "bad", "{}").Invalid(t, "spec.a: Invalid value")
	}},
	{Statement: "configurations and policies themselves are never sent to webhooks", Proof: func(t *testing.T, c *kit.Cluster) {
		// Cluster-scoped objects match any namespaceSelector, so this webhook is only for objects with a label.
		h := kit.ServeReviews(t, kit.DenyRequest("no"))
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h,
			`{rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}],
			objectSelector: {matchLabels: {of: `+c.Namespace+`}}}`))
		for resource, body := range map[string]string{
			"validatingwebhookconfigurations":   "kind: ValidatingWebhookConfiguration",
			"mutatingwebhookconfigurations":     "kind: MutatingWebhookConfiguration",
			"validatingadmissionpolicybindings": "{kind: ValidatingAdmissionPolicyBinding, spec: {policyName: none, validationActions: [Deny]}}",
			"mutatingadmissionpolicybindings":   "{kind: MutatingAdmissionPolicyBinding, spec: {policyName: none}}",
		} {
			object := kit.With(kit.Manifest("%s", body), map[string]any{"name": c.Namespace + "-x",
				"labels": map[string]any{"of": c.Namespace}}, "metadata")
			object["apiVersion"] = "admissionregistration.k8s.io/v1"
			c.Post(t, kit.AdmissionRegistration+resource, object).Created(t)
			c.Delete(t, kit.AdmissionRegistration+resource+"/"+c.Namespace+"-x").OK(t)
		}
		role := kit.Manifest("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s, labels: {of: %[1]s}}}", c.Namespace)
		c.Post(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).
			Refused(t, http.StatusBadRequest, "", "denied the request: no")
	}},
	{Statement: "a webhook is reached by its Service", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeWebhook(t, "hook."+c.Namespace+".svc", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		address := kit.Must(url.Parse(h.URL))(t)
		c.Post(t, c.Path("v1", "services"), kit.Manifest("{apiVersion: v1, kind: Service, metadata: {name: hook}, spec: {type: ExternalName, externalName: localhost}}")).Created(t)
		w := c.WebhookEntry("a.example.com", h, "")
		w["clientConfig"] = kit.With(kit.Manifest("{service: {name: hook, namespace: %s, path: /path, port: %s}}", c.Namespace,
			address.Port()), h.CA, "caBundle")
		missing := c.WebhookEntry("b.example.com", h, "clientConfig: {service: {name: none, namespace: "+c.Namespace+"}}\nobjectSelector: {matchLabels: {missing: x}}")
		c.ActivateWebhooks(t, "Validating", "", w)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).
			Refused(t, http.StatusInternalServerError, "InternalError",
				`failed calling webhook "a.example.com": failed to call webhook: the server responded with the status code 418`)
		c.ActivateWebhooks(t, "Mutating", "", missing)
		c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap("b", nil), "x", "metadata", "labels", "missing")).
			Refused(t, http.StatusInternalServerError, "InternalError",
				`failed calling webhook "b.example.com": failed to call webhook: Post "https://none.`+c.Namespace+`.svc:443/?timeout=10s": service "none" not found`)
	}},
}
