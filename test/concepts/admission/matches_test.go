package admission

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// Which requests a webhook receives.
var webhookMatches = []kit.Promise{
	{Statement: "a webhook receives an object in the version of its rules, unless matchPolicy is Exact", Proof: func(t *testing.T, c *kit.Cluster) {
		equivalent, exact := kit.ServeReviews(t, label("converted")), kit.ServeReviews(t, kit.AllowRequest)
		rules := "rules: [{operations: [CREATE], apiGroups: [autoscaling], apiVersions: [v1], resources: [horizontalpodautoscalers]}]\n"
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", equivalent, rules+"matchPolicy: Equivalent"),
			c.WebhookEntry("b.example.com", exact, rules+"matchPolicy: Exact"))
		scaler := `{apiVersion: autoscaling/%s, kind: HorizontalPodAutoscaler, metadata: {name: %[1]s}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}`
		c.Post(t, c.Path("autoscaling/v2", "horizontalpodautoscalers"), kit.Manifest(scaler, "v2")).Created(t).
			HasField(t, `"autoscaling/v2"`, "apiVersion").HasField(t, `{"converted":"set"}`, "metadata", "labels")
		r := equivalent.OnlyRequest(t)
		kit.Equal(t, []string{r.Kind.Version, r.Resource.Version, r.RequestKind.Version, r.RequestResource.Version},
			[]string{"v1", "v1", "v2", "v2"})
		if !strings.Contains(string(r.Object.Raw), `"apiVersion":"autoscaling/v1"`) {
			t.Errorf("the object is %s", r.Object.Raw)
		}
		c.Post(t, c.Path("autoscaling/v1", "horizontalpodautoscalers"), kit.Manifest(scaler, "v1")).Created(t)
		kit.Equal(t, exact.Calls(), []string{"CREATE horizontalpodautoscalers v1"})
	}},
	{Statement: "rules define which operations, resources and subresources a webhook is called for", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		hooks := map[string]*kit.Webhook{}
		var all []map[string]any
		for name, rule := range map[string]string{
			"create": `{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps, pods]}`, "status": `{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods/status]}`,
			"below": `{operations: [UPDATE], apiGroups: ["*"], apiVersions: ["*"], resources: ["pods/*"]}`, "scale": `{operations: ["*"], apiGroups: [apps], apiVersions: [v1], resources: ["*/scale"]}`,
			"other": `{operations: ["*"], apiGroups: [apps], apiVersions: [v1], resources: [pods]}`, "cluster": `{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: [pods], scope: Cluster}`,
			"namespaced": `{operations: [DELETE], apiGroups: ["*"], apiVersions: ["*"], resources: [pods], scope: Namespaced}`,
		} {
			hooks[name] = kit.ServeReviews(t, kit.AllowRequest)
			all = append(all, c.WebhookEntry(name+".example.com", hooks[name], "rules: ["+rule+"]"))
		}
		c.ActivateWebhooks(t, "Validating", "", all...)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("m", nil)).Created(t)
		c.Post(t, c.Path("v1", "pods"), kit.Pod("p")).Created(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "pods", "p", "status"), `{"status":{"phase":"Running"}}`).OK(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "pods", "p"), `{"metadata":{"labels":{"a":"b"}}}`).OK(t)
		c.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("d")).Created(t)
		c.Patch(t, kit.MergePatch, c.Path("apps/v1", "deployments", "d", "scale"), `{"spec":{"replicas":5}}`).OK(t)
		c.Delete(t, c.Path("v1", "pods", "p")+"?gracePeriodSeconds=0").OK(t)
		// "pods/*" also matches pods, contrary to the documentation.
		for name, want := range map[string][]string{
			"create": {"CREATE configmaps m", "CREATE pods p"}, "status": {"UPDATE pods/status p"}, "below": {"UPDATE pods/status p", "UPDATE pods p"},
			"scale": {"UPDATE deployments/scale d"}, "other": {}, "cluster": {}, "namespaced": {"DELETE pods p"},
		} {
			if got := slices.Compact(hooks[name].Calls()); !slices.Equal(got, want) { // a delete may be sent more than once
				t.Errorf("%s was called for %q instead of %q", name, got, want)
			}
		}
		if scale := hooks["scale"].OnlyRequest(t); scale.Kind.Kind != "Scale" || scale.Kind.Group != "autoscaling" {
			t.Errorf("the kind of deployments/scale is %v", scale.Kind)
		}
	}},
	{Statement: "an objectSelector applies to the new and to the old object", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, kit.AllowRequest)
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, "objectSelector: {matchLabels: {seen: 'yes'}}"))
		for name, value := range map[string]string{"a": "yes", "b": "no"} {
			c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap(name, nil), value, "metadata", "labels", "seen")).Created(t)
		}
		c.Patch(t, kit.MergePatch, c.Path("v1", "configmaps", "a"), `{"metadata":{"labels":null}}`).OK(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "configmaps", "a"), `{"data":{"k":"v"}}`).OK(t)
		kit.Equal(t, h.Calls(), []string{"CREATE configmaps a", "UPDATE configmaps a"})
	}},
	{Statement: "a namespaceSelector applies to the labels of the namespace, and to those of a Namespace object", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, kit.AllowRequest)
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h,
			`{namespaceSelector: {matchLabels: {of: `+c.Namespace+`}}, rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [namespaces, secrets]}]}`))
		for _, name := range []string{"in", "out"} {
			space := kit.Manifest("{apiVersion: v1, kind: Namespace, metadata: {name: %s-%s}}", c.Namespace, name)
			if name == "in" {
				space = kit.With(space, c.Namespace, "metadata", "labels", "of")
			}
			c.Post(t, "/api/v1/namespaces", space).Created(t)
			harness.Eventually(t, "admission has the namespace", func() bool {
				code := c.Post(t, "/api/v1/namespaces/"+c.Namespace+"-"+name+"/secrets",
					kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: s}}")).Code
				return code == http.StatusCreated
			})
		}
		kit.Equal(t, h.Calls(), []string{"CREATE namespaces " + c.Namespace + "-in", "CREATE secrets s"})
	}},
	{Statement: "matchConditions are CEL expressions, and their errors count as failures", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, kit.DenyRequest("matched"))
		conditions := `matchConditions: [{name: named, expression: "request.name != 'skipped'"}, {name: user, expression: "!('system:nodes' in request.userInfo.groups)"},
			{name: data, expression: "object == null || object.data.k == 'v'"}, {name: may, expression: "authorizer.group('').resource('pods').check('create').allowed()"}]`
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, conditions))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("skipped", map[string]string{"k": "v"})).Created(t)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("other", map[string]string{"k": "w"})).Created(t)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("denied", map[string]string{"k": "v"})).
			Refused(t, http.StatusBadRequest, "", "matched")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("failing", nil)).
			Want(t, http.StatusInternalServerError, http.StatusForbidden)
	}},
	{Statement: "a deleted configuration soon has no effect", Proof: func(t *testing.T, c *kit.Cluster) {
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", kit.ServeReviews(t, kit.DenyRequest("still")), ""))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Want(t, http.StatusBadRequest)
		c.Delete(t, kit.AdmissionRegistration+"validatingwebhookconfigurations/"+c.Namespace).OK(t)
		harness.Eventually(t, "the webhook is no longer called", func() bool {
			return c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Code == http.StatusCreated
		})
	}},
}
