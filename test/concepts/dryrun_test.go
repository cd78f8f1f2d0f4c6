package concepts

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/ptr"
)

// Section "Dry-run". Those of deletes of collections are in deletecollection_test.go, of apply in apply_test.go.
func TestDryRun(t *testing.T) {
	prove(t, nil, append(dryRuns, dryAdmission...)...)
}

// dry runs requests on a collection, and fails unless its objects are afterwards what they were, and its watchers have seen
// nothing. The marker is an object that it makes so that there is something to see then.
func (c *cluster) dry(t *testing.T, collection string, marker map[string]any, run func()) {
	t.Helper()
	before := c.get(t, collection+"?fieldSelector=metadata.name!=kube-root-ca.crt").ok(t)
	watch := c.watch(t, collection+"?watch=true&fieldSelector=metadata.name!=kube-root-ca.crt&resourceVersion="+before.version(t))
	run()
	after := c.get(t, collection+"?fieldSelector=metadata.name!=kube-root-ca.crt").ok(t)
	equal(t, after.value(t, "items"), before.value(t, "items"))
	made := c.post(t, collection, marker).created(t)
	if first := watch.next(t); first.version() != made.version(t) {
		t.Errorf("watchers saw %s %s", first.Type, first.name())
	}
}

var dryRuns = []promise{
	{"a dry run of a create is answered with the object that would be, and makes none", func(t *testing.T, c *cluster) {
		c.dry(t, c.path("v1", "configmaps"), configMap("z", nil), func() {
			a := c.post(t, c.path("v1", "configmaps")+"?dryRun=All", configMap("a", map[string]string{"a": "1"})).created(t)
			if a.text(t, "metadata", "uid") == "" || a.text(t, "metadata", "creationTimestamp") == "" || a.text(t, "data", "a") != "1" {
				t.Errorf("the answer is %s", a.Body)
			}
			if version := a.version(t); version != "" {
				t.Errorf("it has the version %s", version)
			}
			c.get(t, c.path("v1", "configmaps", "a")).notFound(t)
			c.post(t, c.path("v1", "configmaps")+"?dryRun=All", configMap("A B", nil)).invalid(t)
		})
	}},
	{"a dry run of an update or a patch is answered with the merged, defaulted object, and changes nothing", func(t *testing.T, c *cluster) {
		deployments := c.path("apps/v1", "deployments")
		created := c.post(t, deployments, deployment("web")).created(t)
		c.dry(t, deployments, deployment("z"), func() {
			changed := with(deployment("web"), 5, "spec", "replicas")
			for _, a := range []answer{
				c.put(t, deployments+"/web?dryRun=All", changed),
				c.patch(t, mergePatch, deployments+"/web?dryRun=All", `{"spec":{"replicas":5,"revisionHistoryLimit":null}}`),
				c.patch(t, jsonPatch, deployments+"/web?dryRun=All", `[{"op":"replace","path":"/spec/replicas","value":5}]`),
				c.patch(t, strategicPatch, deployments+"/web?dryRun=All", `{"spec":{"replicas":5}}`),
				c.patch(t, applyPatch, deployments+"/web?dryRun=All&force=true&fieldManager=a", changed),
			} {
				equal(t, a.ok(t).value(t, "spec", "replicas"), 5.0)
				equal(t, a.value(t, "spec", "revisionHistoryLimit"), 10.0)
				equal(t, a.value(t, "metadata", "generation"), 2.0)
				equal(t, a.version(t), created.version(t))
			}
			c.patch(t, applyPatch, deployments+"/new?dryRun=All&fieldManager=a", deployment("new")).created(t)
			c.patch(t, applyPatch, deployments+"/web?dryRun=All&fieldManager=a", changed).conflict(t)
			c.put(t, deployments+"/web?dryRun=All", with(changed, "1", "metadata", "resourceVersion")).conflict(t)
			c.post(t, deployments+"?dryRun=All", changed).refused(t, http.StatusConflict, "AlreadyExists")
			c.put(t, deployments+"/none?dryRun=All", deployment("none")).notFound(t)
		})
	}},
	{"a dry run of a delete is answered as a delete is, and deletes nothing", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		c.post(t, c.path("v1", "configmaps"), finalized("b", "example.com/one")).created(t)
		c.dry(t, c.path("v1", "configmaps"), configMap("z", nil), func() {
			equal(t, c.delete(t, c.path("v1", "configmaps", "a")+"?dryRun=All").ok(t).text(t, "status"), "Success")
			for _, policy := range []string{"Foreground", "Orphan", "Background"} {
				a := c.delete(t, c.path("v1", "configmaps", "b")+"?dryRun=All&propagationPolicy="+policy).ok(t)
				if a.value(t, "metadata", "deletionTimestamp") == nil {
					t.Errorf("%s: the answer is %s", policy, a.Body)
				}
			}
			c.delete(t, c.path("v1", "configmaps")+"?dryRun=All").ok(t)
			options := map[string]any{"dryRun": []string{"All"}, "preconditions": map[string]any{"uid": "other"}}
			c.send(t, http.MethodDelete, c.path("v1", "configmaps", "a"), nil, options).conflict(t)
		})
		c.post(t, c.path("v1", "pods"), pod("p")).created(t)
		c.dry(t, c.path("v1", "pods"), pod("z"), func() {
			a := c.delete(t, c.path("v1", "pods", "p")+"?dryRun=All").ok(t)
			equal(t, a.value(t, "metadata", "deletionGracePeriodSeconds"), 30.0)
			c.delete(t, c.path("v1", "pods", "p")+"?dryRun=All&gracePeriodSeconds=0").ok(t)
		})
	}},
	{"a dry run of a delete of a namespace does not begin to empty it", func(t *testing.T, c *cluster) {
		c.delete(t, c.global("v1", "namespaces", c.namespace)+"?dryRun=All").ok(t)
		equal(t, c.get(t, c.global("v1", "namespaces", c.namespace)).text(t, "status", "phase"), "Active")
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
	}},
	{"a dry run of a subresource leaves its object", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		deployments := c.path("apps/v1", "deployments")
		c.post(t, deployments, deployment("web")).created(t)
		c.dry(t, deployments, deployment("z"), func() {
			equal(t, c.patch(t, mergePatch, deployments+"/web/scale?dryRun=All",
				`{"spec":{"replicas":9}}`).ok(t).value(t, "spec", "replicas"), 9.0)
			equal(t, c.patch(t, mergePatch, deployments+"/web/status?dryRun=All",
				`{"status":{"replicas":9}}`).ok(t).value(t, "status", "replicas"), 9.0)
		})
		pods := c.path("v1", "pods")
		c.post(t, pods, with(pod("p"), "", "spec", "nodeName")).created(t)
		c.dry(t, pods, pod("z"), func() {
			c.post(t, pods+"/p/binding?dryRun=All", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"node"}}`).created(t)
			c.post(t, pods+"/p/eviction?dryRun=All", `{"metadata":{"name":"p"}}`).created(t)
			c.post(t, pods+"/p/eviction", `{"metadata":{"name":"p"},"deleteOptions":{"dryRun":["All"]}}`).created(t)
		})
		namespaces := c.global("v1", "namespaces", c.namespace)
		whole := c.get(t, namespaces).ok(t)
		c.put(t, namespaces+"/finalize?dryRun=All", with(whole.object(t), []string{"kubernetes", "example.com/one"},
			"spec", "finalizers")).ok(t)
		equal(t, c.get(t, namespaces).value(t, "spec", "finalizers"), []any{"kubernetes"})
	}},
	{"a dry run of a custom resource leaves it", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, structural)
		path := c.path(groupVersion, "widgets")
		created := c.post(t, path, widget(groupVersion, "a")).created(t)
		c.dry(t, path, widget(groupVersion, "z"), func() {
			c.post(t, path+"?dryRun=All", widget(groupVersion, "b")).created(t)
			c.post(t, path+"?dryRun=All", with(widget(groupVersion, "b"), "many", "spec", "replicas")).invalid(t)
			c.put(t, path+"/a?dryRun=All", with(created.object(t), 3, "spec", "replicas")).ok(t)
			c.patch(t, mergePatch, path+"/a?dryRun=All", `{"spec":{"replicas":3}}`).ok(t)
			c.patch(t, mergePatch, path+"/a/status?dryRun=All", `{"status":{"replicas":3}}`).ok(t)
			c.patch(t, applyPatch, path+"/a?dryRun=All&fieldManager=a", with(widget(groupVersion, "a"), 3, "spec", "replicas")).ok(t)
			c.delete(t, path+"/a?dryRun=All").ok(t)
			c.delete(t, path+"?dryRun=All").ok(t)
		})
	}},
	{"a dry run of a definition defines nothing", func(t *testing.T, c *cluster) {
		group := c.namespace + ".example.com"
		c.post(t, definitions+"?dryRun=All", widgetDefinition(group, anySchema)).created(t)
		c.get(t, definitions+"/widgets."+group).notFound(t)
		c.get(t, "/apis/"+group).want(t, http.StatusNotFound)
	}},
	{"a dry run of a service takes no address and no port", func(t *testing.T, c *cluster) {
		path := c.path("v1", "services")
		first := c.post(t, path, with(service("first"), "NodePort", "spec", "type")).created(t)
		c.delete(t, path+"/first").ok(t)
		again := with(first.object(t), map[string]any{"name": "second"}, "metadata") // with the same address and port
		for range 3 {
			a := c.post(t, path+"?dryRun=All", again).created(t)
			equal(t, a.value(t, "spec"), first.value(t, "spec"))
		}
		c.post(t, path, again).created(t)
	}},
	{"a dry run generates names, uids and addresses of its own", func(t *testing.T, c *cluster) {
		object := manifest("{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a-}}")
		seen := map[string]bool{}
		for _, query := range []string{"?dryRun=All", "?dryRun=All", ""} {
			a := c.post(t, c.path("v1", "configmaps")+query, object).created(t)
			name, uid := a.text(t, "metadata", "name"), a.text(t, "metadata", "uid")
			if !strings.HasPrefix(name, "a-") || len(name) != len("a-")+5 || seen[name] || seen[uid] {
				t.Errorf("%s: %s %s", query, name, uid)
			}
			seen[name], seen[uid] = true, true
		}
		a := c.post(t, c.path("v1", "services")+"?dryRun=All", with(service("a"), "NodePort", "spec", "type")).created(t)
		if a.text(t, "spec", "clusterIP") == "" {
			t.Errorf("the answer is %s", a.Body)
		}
	}},
	{"dryRun takes the value All, once or several times, and no other, in the query and in a body", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).created(t)
		c.post(t, path+"?dryRun=All&dryRun=All", configMap("b", nil)).created(t)
		c.get(t, path+"/b").notFound(t)
		// The documents say that an empty value allows side effects; kube-apiserver refuses it.
		for _, query := range []string{"dryRun", "dryRun=", "dryRun&pretty=true", "dryRun=all", "dryRun=true", "dryRun=All,All", "dryRun=All&dryRun=Some"} {
			for _, a := range []answer{
				c.post(t, path+"?"+query, configMap("b", nil)),
				c.put(t, path+"/a?"+query, configMap("a", map[string]string{"a": "1"})),
				c.patch(t, mergePatch, path+"/a?"+query, `{"data":{"a":"1"}}`),
				c.delete(t, path+"/a?"+query),
				c.delete(t, path+"?"+query),
			} {
				a.invalid(t, "dryRun: Unsupported value: ", `supported values: "All"`)
			}
		}
		equal(t, c.get(t, path+"/a").value(t, "data"), nil)
	}},
	{"who may not make a request may not run it dry, and who may, may", func(t *testing.T, c *cluster) {
		deployments := c.path("apps/v1", "deployments")
		c.post(t, deployments, deployment("web")).created(t)
		as := func(method, path, contentType, body string) answer {
			return c.send(t, method, path, header{"Impersonate-User", "jane-" + c.namespace, "Content-Type", contentType}, body)
		}
		patch := func() answer {
			return as(http.MethodPatch, deployments+"/web?dryRun=All", mergePatch, `{"spec":{"replicas":1}}`)
		}
		patch().forbidden(t, `cannot patch resource "deployments" in API group "apps"`)
		rbac := c.path("rbac.authorization.k8s.io/v1", "roles")
		c.post(t, rbac,
			manifest("{metadata: {name: patcher}, rules: [{apiGroups: [apps], resources: [deployments], verbs: [patch]}]}")).created(t)
		c.post(t, c.path("rbac.authorization.k8s.io/v1", "rolebindings"), manifest(`{metadata: {name: patcher},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: patcher}, subjects: [{kind: User, name: jane-%s}]}`, c.namespace)).created(t)
		eventually(t, "jane may patch", func() bool {
			return patch().want(t, http.StatusOK,
				http.StatusForbidden).Code == http.StatusOK
		})
		as(http.MethodPost, deployments+"?dryRun=All", "application/json",
			string(asYAML(deployment("x")))).forbidden(t, "cannot create")
		as(http.MethodDelete, deployments+"/web?dryRun=All", "application/json", "{}").forbidden(t, "cannot delete")
		// An apply that would create needs the right to create.
		as(http.MethodPatch, deployments+"/x?dryRun=All&fieldManager=a", applyPatch,
			string(asYAML(deployment("x")))).forbidden(t, "create")
	}},
}

var dryAdmission = []promise{
	{"admission is part of a dry run", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "limitranges"),
			manifest(`{metadata: {name: l}, spec: {limits: [{type: Container, default: {cpu: "1"}, max: {cpu: "2"}}]}}`)).created(t)
		body := with(pod("a"), []any{map[string]any{"name": "c", "image": "i",
			"resources": map[string]any{"limits": map[string]any{"cpu": "3"}}}}, "spec", "containers")
		eventually(t, "the limits are known", func() bool {
			return c.post(t, c.path("v1", "pods")+"?dryRun=All", body).want(t, http.StatusForbidden,
				http.StatusCreated).Code == http.StatusForbidden
		})
		c.post(t, c.path("v1", "pods")+"?dryRun=All", body).forbidden(t, "maximum cpu usage per Container is 2, but limit is 3")
		a := c.post(t, c.path("v1", "pods")+"?dryRun=All", pod("a")).created(t)
		containers := a.value(t, "spec", "containers").([]any)
		equal(t, containers[0].(map[string]any)["resources"].(map[string]any)["limits"], map[string]any{"cpu": "1"})
		c.post(t, "/api/v1/namespaces/none-"+c.namespace+"/configmaps?dryRun=All", configMap("a", nil)).notFound(t)
	}},
	{"a webhook that has no side effects is called in a dry run, and told that it is one", func(t *testing.T, c *cluster) {
		c.webhookIsTold(t, "None")
	}},
	{"a webhook that has no side effects in a dry run is called, too", func(t *testing.T, c *cluster) {
		c.webhookIsTold(t, "NoneOnDryRun")
	}},
	{"a webhook must say that it has no side effects, or none in a dry run", func(t *testing.T, c *cluster) {
		hooks := c.global("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")
		for _, sideEffects := range []string{"sideEffects: Some,", "sideEffects: Unknown,", ""} {
			c.post(t, hooks,
				manifest(`{metadata: {name: %s}, webhooks: [{name: a.example.com, %s admissionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1"}}]}`,
					c.namespace, sideEffects)).invalid(t, "webhooks[0].sideEffects")
		}
	}},
}

// webhookIsTold shows that a webhook with these side effects takes part in every verb, dry or not, and knows which it is.
func (c *cluster) webhookIsTold(t *testing.T, sideEffects string) {
	h := reviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.Operation == admissionv1.Delete {
			return allow(r)
		}
		return change(`[{"op":"add","path":"/metadata/labels","value":{"by":"hook"}}]`)(r)
	})
	c.activate(t, "Mutating", "", c.webhook("a.example.com", h, "{sideEffects: "+sideEffects+
		", rules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [secrets]}]}"))
	calls := 0
	told := func(dryRun bool, a answer) answer {
		t.Helper()
		a.want(t, http.StatusOK, http.StatusCreated)
		calls++
		if all := h.requests(); len(all) != calls || ptr.Deref(all[calls-1].DryRun, false) != dryRun {
			t.Errorf("%s: the webhook saw %v", a.request, all)
		}
		return a
	}
	path, secret := c.path("v1", "secrets"), manifest("{apiVersion: v1, kind: Secret, metadata: {name: a}}")
	equal(t, told(true, c.post(t, path+"?dryRun=All", secret)).text(t, "metadata", "labels", "by"), "hook")
	told(false, c.post(t, path, secret))
	told(true, c.put(t, path+"/a?dryRun=All", with(secret, "1", "stringData", "a")))
	told(true, c.patch(t, mergePatch, path+"/a?dryRun=All", `{"stringData":{"a":"1"}}`))
	told(true, c.delete(t, path+"/a?dryRun=All"))
	told(false, c.delete(t, path+"/a"))
}
