package writes

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

var dryRuns = []kit.Promise{
	{Statement: "a dry run of a create returns the object that would be created, and creates none", Proof: func(t *testing.T, c *kit.Cluster) {
		c.ChangesNothing(t, c.Path("v1", "configmaps"), kit.ConfigMap("z", nil), func() {
			a := c.Post(t, c.Path("v1", "configmaps")+"?dryRun=All", kit.ConfigMap("a", map[string]string{"a": "1"})).Created(t)
			if a.Text(t, "metadata", "uid") == "" || a.Text(t, "metadata", "creationTimestamp") == "" || a.Text(t, "data", "a") != "1" {
				t.Errorf("the response is %s", a.Body)
			}
			kit.Equal(t, a.ResourceVersion(t), "")
			c.Get(t, c.Path("v1", "configmaps", "a")).NotFound(t)
			c.Post(t, c.Path("v1", "configmaps")+"?dryRun=All", kit.ConfigMap("A B", nil)).Invalid(t)
		})
	}},
	{Statement: "a dry run of an update or a patch returns the merged, defaulted object, and changes nothing", Proof: func(t *testing.T, c *kit.Cluster) {
		deployments := c.Path("apps/v1", "deployments")
		created := c.Post(t, deployments, kit.Deployment("web")).Created(t)
		c.ChangesNothing(t, deployments, kit.Deployment("z"), func() {
			changed := kit.With(kit.Deployment("web"), 5, "spec", "replicas")
			for _, a := range []kit.Answer{
				c.Put(t, deployments+"/web?dryRun=All", changed),
				c.Patch(t, kit.MergePatch, deployments+"/web?dryRun=All", `{"spec":{"replicas":5,"revisionHistoryLimit":null}}`),
				c.Patch(t, kit.JSONPatch, deployments+"/web?dryRun=All", `[{"op":"replace","path":"/spec/replicas","value":5}]`),
				c.Patch(t, kit.StrategicPatch, deployments+"/web?dryRun=All", `{"spec":{"replicas":5}}`),
				c.Patch(t, kit.ApplyPatch, deployments+"/web?dryRun=All&force=true&fieldManager=a", changed),
			} {
				kit.Equal(t, a.OK(t).Value(t, "spec", "replicas"), 5.0)
				kit.Equal(t, a.Value(t, "spec", "revisionHistoryLimit"), 10.0)
				kit.Equal(t, a.Value(t, "metadata", "generation"), 2.0)
				kit.Equal(t, a.ResourceVersion(t), created.ResourceVersion(t))
			}
			c.Patch(t, kit.ApplyPatch, deployments+"/new?dryRun=All&fieldManager=a", kit.Deployment("new")).Created(t)
			c.Patch(t, kit.ApplyPatch, deployments+"/web?dryRun=All&fieldManager=a", changed).Conflict(t)
			c.Put(t, deployments+"/web?dryRun=All", kit.With(changed, "1", "metadata", "resourceVersion")).Conflict(t)
			c.Post(t, deployments+"?dryRun=All", changed).Refused(t, http.StatusConflict, "AlreadyExists")
			c.Put(t, deployments+"/none?dryRun=All", kit.Deployment("none")).NotFound(t)
		})
	}},
	{Statement: "a dry run of a delete has the same response as a delete, and deletes nothing", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("b", "example.com/one")).Created(t)
		c.ChangesNothing(t, c.Path("v1", "configmaps"), kit.ConfigMap("z", nil), func() {
			kit.Equal(t, c.Delete(t, c.Path("v1", "configmaps", "a")+"?dryRun=All").OK(t).Text(t, "status"), "Success")
			for _, policy := range []string{"Foreground", "Orphan", "Background"} {
				a := c.Delete(t, c.Path("v1", "configmaps", "b")+"?dryRun=All&propagationPolicy="+policy).OK(t)
				if a.Value(t, "metadata", "deletionTimestamp") == nil {
					t.Errorf("%s: the response is %s", policy, a.Body)
				}
			}
			c.Delete(t, c.Path("v1", "configmaps")+"?dryRun=All").OK(t)
			options := map[string]any{"dryRun": []string{"All"}, "preconditions": map[string]any{"uid": "other"}}
			c.Send(t, http.MethodDelete, c.Path("v1", "configmaps", "a"), nil, options).Conflict(t)
		})
		c.Post(t, c.Path("v1", "pods"), kit.Pod("p")).Created(t)
		c.ChangesNothing(t, c.Path("v1", "pods"), kit.Pod("z"), func() {
			a := c.Delete(t, c.Path("v1", "pods", "p")+"?dryRun=All").OK(t)
			kit.Equal(t, a.Value(t, "metadata", "deletionGracePeriodSeconds"), 30.0)
			c.Delete(t, c.Path("v1", "pods", "p")+"?dryRun=All&gracePeriodSeconds=0").OK(t)
		})
	}},
	{Statement: "a dry run of a namespace's deletion deletes nothing in it", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Delete(t, c.ClusterPath("v1", "namespaces", c.Namespace)+"?dryRun=All").OK(t)
		kit.Equal(t, c.Get(t, c.ClusterPath("v1", "namespaces", c.Namespace)).Text(t, "status", "phase"), "Active")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
	}},
	{Statement: "a dry run of a subresource does not change its object", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		deployments := c.Path("apps/v1", "deployments")
		c.Post(t, deployments, kit.Deployment("web")).Created(t)
		c.ChangesNothing(t, deployments, kit.Deployment("z"), func() {
			kit.Equal(t, c.Patch(t, kit.MergePatch, deployments+"/web/scale?dryRun=All",
				`{"spec":{"replicas":9}}`).OK(t).Value(t, "spec", "replicas"), 9.0)
			kit.Equal(t, c.Patch(t, kit.MergePatch, deployments+"/web/status?dryRun=All",
				`{"status":{"replicas":9}}`).OK(t).Value(t, "status", "replicas"), 9.0)
		})
		pods := c.Path("v1", "pods")
		c.Post(t, pods, kit.With(kit.Pod("p"), "", "spec", "nodeName")).Created(t)
		c.ChangesNothing(t, pods, kit.Pod("z"), func() {
			c.Post(t, pods+"/p/binding?dryRun=All", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"node"}}`).Created(t)
			c.Post(t, pods+"/p/eviction?dryRun=All", `{"metadata":{"name":"p"}}`).Created(t)
			c.Post(t, pods+"/p/eviction", `{"metadata":{"name":"p"},"deleteOptions":{"dryRun":["All"]}}`).Created(t)
		})
		namespaces := c.ClusterPath("v1", "namespaces", c.Namespace)
		whole := c.Get(t, namespaces).OK(t)
		c.Put(t, namespaces+"/finalize?dryRun=All", kit.With(whole.Object(t), []string{"kubernetes", "example.com/one"},
			"spec", "finalizers")).OK(t)
		kit.Equal(t, c.Get(t, namespaces).Value(t, "spec", "finalizers"), []any{"kubernetes"})
	}},
	{Statement: "a dry run of a custom resource does not change it", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.StructuralSchema)
		path := c.Path(groupVersion, "widgets")
		created := c.Post(t, path, kit.Widget(groupVersion, "a")).Created(t)
		c.ChangesNothing(t, path, kit.Widget(groupVersion, "z"), func() {
			c.Post(t, path+"?dryRun=All", kit.Widget(groupVersion, "b")).Created(t)
			c.Post(t, path+"?dryRun=All", kit.With(kit.Widget(groupVersion, "b"), "many", "spec", "replicas")).Invalid(t)
			c.Put(t, path+"/a?dryRun=All", kit.With(created.Object(t), 3, "spec", "replicas")).OK(t)
			c.Patch(t, kit.MergePatch, path+"/a?dryRun=All", `{"spec":{"replicas":3}}`).OK(t)
			c.Patch(t, kit.MergePatch, path+"/a/status?dryRun=All", `{"status":{"replicas":3}}`).OK(t)
			c.Patch(t, kit.ApplyPatch, path+"/a?dryRun=All&fieldManager=a", kit.With(kit.Widget(groupVersion, "a"), 3, "spec", "replicas")).OK(t)
			c.Delete(t, path+"/a?dryRun=All").OK(t)
			c.Delete(t, path+"?dryRun=All").OK(t)
		})
	}},
	{Statement: "a dry run of a definition defines nothing", Proof: func(t *testing.T, c *kit.Cluster) {
		group := c.Namespace + ".example.com"
		c.Post(t, kit.Definitions+"?dryRun=All", kit.WidgetDefinition(group, kit.AnySchema)).Created(t)
		c.Get(t, kit.Definitions+"/widgets."+group).NotFound(t)
		c.Get(t, "/apis/"+group).Want(t, http.StatusNotFound)
	}},
	{Statement: "a dry run of a service allocates no address or port", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "services")
		first := c.Post(t, path, kit.With(kit.Service("first"), "NodePort", "spec", "type")).Created(t)
		c.Delete(t, path+"/first").OK(t)
		again := kit.With(first.Object(t), map[string]any{"name": "second"}, "metadata") // with the same address and port
		for range 3 {
			a := c.Post(t, path+"?dryRun=All", again).Created(t)
			kit.Equal(t, a.Value(t, "spec"), first.Value(t, "spec"))
		}
		c.Post(t, path, again).Created(t)
	}},
	{Statement: "a dry run generates its own names, uids and addresses", Proof: func(t *testing.T, c *kit.Cluster) {
		object := kit.Manifest("{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a-}}")
		seen := map[string]bool{}
		for _, query := range []string{"?dryRun=All", "?dryRun=All", ""} {
			a := c.Post(t, c.Path("v1", "configmaps")+query, object).Created(t)
			name, uid := a.Text(t, "metadata", "name"), a.Text(t, "metadata", "uid")
			if !strings.HasPrefix(name, "a-") || len(name) != len("a-")+5 || seen[name] || seen[uid] {
				t.Errorf("%s: %s %s", query, name, uid)
			}
			seen[name], seen[uid] = true, true
		}
		a := c.Post(t, c.Path("v1", "services")+"?dryRun=All", kit.With(kit.Service("a"), "NodePort", "spec", "type")).Created(t)
		if a.Text(t, "spec", "clusterIP") == "" {
			t.Errorf("the response is %s", a.Body)
		}
	}},
	{Statement: "dryRun only accepts the value All, once or several times, in the query and in a body", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		c.Post(t, path+"?dryRun=All&dryRun=All", kit.ConfigMap("b", nil)).Created(t)
		c.Get(t, path+"/b").NotFound(t)
		// According to the documentation, an empty value allows side effects; kube-apiserver rejects it.
		for _, query := range []string{"dryRun", "dryRun=", "dryRun&pretty=true", "dryRun=all", "dryRun=true", "dryRun=All,All", "dryRun=All&dryRun=Some"} {
			for _, a := range []kit.Answer{
				c.Post(t, path+"?"+query, kit.ConfigMap("b", nil)),
				c.Put(t, path+"/a?"+query, kit.ConfigMap("a", map[string]string{"a": "1"})),
				c.Patch(t, kit.MergePatch, path+"/a?"+query, `{"data":{"a":"1"}}`),
				c.Delete(t, path+"/a?"+query),
				c.Delete(t, path+"?"+query),
			} {
				a.Invalid(t, "dryRun: Unsupported value: ", `supported values: "All"`)
			}
		}
		kit.Equal(t, c.Get(t, path+"/a").Value(t, "data"), nil)
	}},
	{Statement: "a dry run needs the same permissions as the request", Proof: func(t *testing.T, c *kit.Cluster) {
		deployments := c.Path("apps/v1", "deployments")
		c.Post(t, deployments, kit.Deployment("web")).Created(t)
		as := func(method, path, contentType, body string) kit.Answer {
			return c.Send(t, method, path, kit.Header{"Impersonate-User", "jane-" + c.Namespace, "Content-Type", contentType}, body)
		}
		patch := func() kit.Answer {
			return as(http.MethodPatch, deployments+"/web?dryRun=All", kit.MergePatch, `{"spec":{"replicas":1}}`)
		}
		patch().Forbidden(t, `cannot patch resource "deployments" in API group "apps"`)
		rbac := c.Path("rbac.authorization.k8s.io/v1", "roles")
		c.Post(t, rbac,
			kit.Manifest("{metadata: {name: patcher}, rules: [{apiGroups: [apps], resources: [deployments], verbs: [patch]}]}")).Created(t)
		c.Post(t, c.Path("rbac.authorization.k8s.io/v1", "rolebindings"), kit.Manifest(`{metadata: {name: patcher},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: patcher}, subjects: [{kind: User, name: jane-%s}]}`, c.Namespace)).Created(t)
		harness.Eventually(t, "jane may patch", func() bool {
			return patch().Want(t, http.StatusOK,
				http.StatusForbidden).Code == http.StatusOK
		})
		as(http.MethodPost, deployments+"?dryRun=All", "application/json",
			string(kit.JSON(kit.Deployment("x")))).Forbidden(t, "cannot create")
		as(http.MethodDelete, deployments+"/web?dryRun=All", "application/json", "{}").Forbidden(t, "cannot delete")
		// An apply that would create needs the permission to create.
		as(http.MethodPatch, deployments+"/x?dryRun=All&fieldManager=a", kit.ApplyPatch,
			string(kit.JSON(kit.Deployment("x")))).Forbidden(t, "create")
	}},
}

var dryAdmission = []kit.Promise{
	{Statement: "a dry run includes admission", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "limitranges"),
			kit.Manifest(`{metadata: {name: l}, spec: {limits: [{type: Container, default: {cpu: "1"}, max: {cpu: "2"}}]}}`)).Created(t)
		body := kit.With(kit.Pod("a"), []any{map[string]any{"name": "c", "image": "i",
			"resources": map[string]any{"limits": map[string]any{"cpu": "3"}}}}, "spec", "containers")
		harness.Eventually(t, "the limits are in effect", func() bool {
			return c.Post(t, c.Path("v1", "pods")+"?dryRun=All", body).Want(t, http.StatusForbidden,
				http.StatusCreated).Code == http.StatusForbidden
		})
		c.Post(t, c.Path("v1", "pods")+"?dryRun=All", body).Forbidden(t, "maximum cpu usage per Container is 2, but limit is 3")
		a := c.Post(t, c.Path("v1", "pods")+"?dryRun=All", kit.Pod("a")).Created(t)
		containers := a.Value(t, "spec", "containers").([]any)
		kit.Equal(t, containers[0].(map[string]any)["resources"].(map[string]any)["limits"], map[string]any{"cpu": "1"})
		c.Post(t, "/api/v1/namespaces/none-"+c.Namespace+"/configmaps?dryRun=All", kit.ConfigMap("a", nil)).NotFound(t)
	}},
	{Statement: "a webhook without side effects is called in a dry run, which is marked as such", Proof: func(t *testing.T, c *kit.Cluster) {
		webhookIsTold(t, c, "None")
	}},
	{Statement: "a webhook without side effects in a dry run is called, too", Proof: func(t *testing.T, c *kit.Cluster) {
		webhookIsTold(t, c, "NoneOnDryRun")
	}},
	{Statement: "a webhook must declare no side effects, or none in a dry run", Proof: func(t *testing.T, c *kit.Cluster) {
		hooks := c.ClusterPath("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")
		for _, sideEffects := range []string{"sideEffects: Some,", "sideEffects: Unknown,", ""} {
			c.Post(t, hooks,
				kit.Manifest(`{metadata: {name: %s}, webhooks: [{name: a.example.com, %s admissionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1"}}]}`,
					c.Namespace, sideEffects)).Invalid(t, "webhooks[0].sideEffects")
		}
	}},
}

// webhookIsTold checks that a webhook with these side effects is called for every verb, dry run or not, and that its request
// says which.
func webhookIsTold(t *testing.T, c *kit.Cluster, sideEffects string) {
	h := kit.ServeReviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.Operation == admissionv1.Delete {
			return kit.AllowRequest(r)
		}
		return kit.PatchRequest(`[{"op":"add","path":"/metadata/labels","value":{"by":"hook"}}]`)(r)
	})
	c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", h, "{sideEffects: "+sideEffects+
		", rules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [secrets]}]}"))
	calls := 0
	told := func(dryRun bool, a kit.Answer) kit.Answer {
		t.Helper()
		a.Want(t, http.StatusOK, http.StatusCreated)
		calls++
		if all := h.Requests(); len(all) != calls || ptr.Deref(all[calls-1].DryRun, false) != dryRun {
			t.Errorf("%s: the webhook received %v", a.Request, all)
		}
		return a
	}
	path, secret := c.Path("v1", "secrets"), kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: a}}")
	kit.Equal(t, told(true, c.Post(t, path+"?dryRun=All", secret)).Text(t, "metadata", "labels", "by"), "hook")
	told(false, c.Post(t, path, secret))
	told(true, c.Put(t, path+"/a?dryRun=All", kit.With(secret, "1", "stringData", "a")))
	told(true, c.Patch(t, kit.MergePatch, path+"/a?dryRun=All", `{"stringData":{"a":"1"}}`))
	told(true, c.Delete(t, path+"/a?dryRun=All"))
	told(false, c.Delete(t, path+"/a"))
}
