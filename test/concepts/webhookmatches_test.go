package concepts

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Which requests a webhook gets.
var webhookMatches = []promise{
	{"a webhook gets an object in the version that it has rules for, unless matchPolicy is Exact", func(t *testing.T, c *cluster) {
		equivalent, exact := reviews(t, label("converted")), reviews(t, allow)
		rules := "rules: [{operations: [CREATE], apiGroups: [autoscaling], apiVersions: [v1], resources: [horizontalpodautoscalers]}]\n"
		c.activate(t, "Mutating", "", c.webhook("a.example.com", equivalent, rules+"matchPolicy: Equivalent"),
			c.webhook("b.example.com", exact, rules+"matchPolicy: Exact"))
		scaler := `{apiVersion: autoscaling/%s, kind: HorizontalPodAutoscaler, metadata: {name: %[1]s}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}`
		c.post(t, c.path("autoscaling/v2", "horizontalpodautoscalers"), manifest(scaler, "v2")).want(t, http.StatusCreated).
			has(t, `"autoscaling/v2"`, "apiVersion").has(t, `{"converted":"set"}`, "metadata", "labels")
		r := equivalent.one(t)
		equal(t, []string{r.Kind.Version, r.Resource.Version, r.RequestKind.Version, r.RequestResource.Version},
			[]string{"v1", "v1", "v2", "v2"})
		if !strings.Contains(string(r.Object.Raw), `"apiVersion":"autoscaling/v1"`) {
			t.Errorf("the object is %s", r.Object.Raw)
		}
		c.post(t, c.path("autoscaling/v1", "horizontalpodautoscalers"), manifest(scaler, "v1")).want(t, http.StatusCreated)
		equal(t, exact.called(), []string{"CREATE horizontalpodautoscalers v1"})
	}},
	{"rules say which operations, resources and subresources a webhook is for", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		hooks := map[string]*hook{}
		var all []map[string]any
		for name, rule := range map[string]string{
			"create": `{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps, pods]}`, "status": `{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods/status]}`,
			"below": `{operations: [UPDATE], apiGroups: ["*"], apiVersions: ["*"], resources: ["pods/*"]}`, "scale": `{operations: ["*"], apiGroups: [apps], apiVersions: [v1], resources: ["*/scale"]}`,
			"other": `{operations: ["*"], apiGroups: [apps], apiVersions: [v1], resources: [pods]}`, "cluster": `{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: [pods], scope: Cluster}`,
			"namespaced": `{operations: [DELETE], apiGroups: ["*"], apiVersions: ["*"], resources: [pods], scope: Namespaced}`,
		} {
			hooks[name] = reviews(t, allow)
			all = append(all, c.webhook(name+".example.com", hooks[name], "rules: ["+rule+"]"))
		}
		c.activate(t, "Validating", "", all...)
		c.post(t, c.path("v1", "configmaps"), configMap("m", nil)).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "pods"), pod("p")).want(t, http.StatusCreated)
		c.patch(t, mergePatch, c.path("v1", "pods", "p", "status"), `{"status":{"phase":"Running"}}`).want(t, http.StatusOK)
		c.patch(t, mergePatch, c.path("v1", "pods", "p"), `{"metadata":{"labels":{"a":"b"}}}`).want(t, http.StatusOK)
		c.post(t, c.path("apps/v1", "deployments"), deployment("d")).want(t, http.StatusCreated)
		c.patch(t, mergePatch, c.path("apps/v1", "deployments", "d", "scale"), `{"spec":{"replicas":5}}`).
			want(t, http.StatusOK)
		c.delete(t, c.path("v1", "pods", "p")+"?gracePeriodSeconds=0").want(t, http.StatusOK)
		// "pods/*" is for pods too, whatever the documents say.
		for name, want := range map[string][]string{
			"create": {"CREATE configmaps m", "CREATE pods p"}, "status": {"UPDATE pods/status p"}, "below": {"UPDATE pods/status p", "UPDATE pods p"},
			"scale": {"UPDATE deployments/scale d"}, "other": {}, "cluster": {}, "namespaced": {"DELETE pods p"},
		} {
			got := slices.DeleteFunc(hooks[name].called(), func(call string) bool { return strings.Contains(call, "kube-root-ca.crt") })
			if got = slices.Compact(got); !slices.Equal(got, want) { // a delete may be sent more than once
				t.Errorf("%s was called for %q instead of %q", name, got, want)
			}
		}
		if scale := hooks["scale"].one(t); scale.Kind.Kind != "Scale" || scale.Kind.Group != "autoscaling" {
			t.Errorf("the kind of deployments/scale is %v", scale.Kind)
		}
	}},
	{"an objectSelector looks at the new and at the old object", func(t *testing.T, c *cluster) {
		h := reviews(t, allow)
		c.activate(t, "Validating", "", c.webhook("a.example.com", h, "objectSelector: {matchLabels: {seen: 'yes'}}"))
		for name, value := range map[string]string{"a": "yes", "b": "no"} {
			c.post(t, c.path("v1", "configmaps"), with(configMap(name, nil), value, "metadata", "labels", "seen")).
				want(t, http.StatusCreated)
		}
		c.patch(t, mergePatch, c.path("v1", "configmaps", "a"), `{"metadata":{"labels":null}}`).want(t, http.StatusOK)
		c.patch(t, mergePatch, c.path("v1", "configmaps", "a"), `{"data":{"k":"v"}}`).want(t, http.StatusOK)
		equal(t, h.called(), []string{"CREATE configmaps a", "UPDATE configmaps a"})
	}},
	{"a namespaceSelector looks at the labels of the namespace, and at a namespace's own", func(t *testing.T, c *cluster) {
		h := reviews(t, allow)
		c.activate(t, "Validating", "", c.webhook("a.example.com", h,
			`{namespaceSelector: {matchLabels: {of: `+c.namespace+`}}, rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [namespaces, secrets]}]}`))
		for _, name := range []string{"in", "out"} {
			space := manifest("{apiVersion: v1, kind: Namespace, metadata: {name: %s-%s}}", c.namespace, name)
			if name == "in" {
				space = with(space, c.namespace, "metadata", "labels", "of")
			}
			c.post(t, "/api/v1/namespaces", space).want(t, http.StatusCreated)
			eventually(t, "the namespace is known to admission", func() bool {
				code := c.post(t, "/api/v1/namespaces/"+c.namespace+"-"+name+"/secrets",
					manifest("{apiVersion: v1, kind: Secret, metadata: {name: s}}")).Code
				return code == http.StatusCreated
			})
		}
		equal(t, h.called(), []string{"CREATE namespaces " + c.namespace + "-in", "CREATE secrets s"})
	}},
	{"matchConditions decide in CEL, and their errors count as failures", func(t *testing.T, c *cluster) {
		h := reviews(t, deny("matched"))
		conditions := `matchConditions: [{name: named, expression: "request.name != 'skipped'"}, {name: user, expression: "!('system:nodes' in request.userInfo.groups)"},
			{name: data, expression: "object == null || object.data.k == 'v'"}, {name: may, expression: "authorizer.group('').resource('pods').check('create').allowed()"}]`
		c.activate(t, "Validating", "", c.webhook("a.example.com", h, conditions))
		c.post(t, c.path("v1", "configmaps"), configMap("skipped", map[string]string{"k": "v"})).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "configmaps"), configMap("other", map[string]string{"k": "w"})).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "configmaps"), configMap("denied", map[string]string{"k": "v"})).
			refused(t, http.StatusBadRequest, "", "matched")
		c.post(t, c.path("v1", "configmaps"), configMap("failing", nil)).
			want(t, http.StatusInternalServerError, http.StatusForbidden)
	}},
	{"a configuration that is deleted is out of effect soon", func(t *testing.T, c *cluster) {
		c.activate(t, "Validating", "", c.webhook("a.example.com", reviews(t, deny("still")), ""))
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusBadRequest)
		c.delete(t, admissionRegistration+"validatingwebhookconfigurations/"+c.namespace).want(t, http.StatusOK)
		eventually(t, "the webhook is asked no longer", func() bool {
			return c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).Code == http.StatusCreated
		})
	}},
}
