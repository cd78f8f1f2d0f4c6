package concepts

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Section "Generated values": what the server sets, and what it makes of a client that sets it.
var generatedValues = []promise{
	{"a new object gets a uid, the time, and a version, whatever the client says they are", func(t *testing.T, c *cluster) {
		before := time.Now().Add(-2 * time.Second) // times are in whole seconds
		object := manifest(`{metadata: {name: a, uid: mine, creationTimestamp: "2001-01-01T00:00:00Z", generation: 7, selfLink: /mine}}`)
		a := c.post(t, c.path("v1", "configmaps"), object).created(t)
		if uid := a.text(t, "metadata", "uid"); !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(uid) {
			t.Errorf("the uid is %s", uid)
		}
		if at, err := time.Parse(time.RFC3339, a.text(t, "metadata",
			"creationTimestamp")); err != nil || at.Before(before) || at.After(time.Now().Add(time.Minute)) {
			t.Errorf("it was created %s, %v", at, err)
		}
		if a.version(t) == "" || a.value(t, "metadata", "selfLink") != nil {
			t.Errorf("the answer is %s", a.Body)
		}
	}},
	{"a create with a resourceVersion is refused", func(t *testing.T, c *cluster) {
		// kube-apiserver answers 500 and gives no reason.
		a := c.post(t, c.path("v1", "configmaps"), `{"metadata":{"name":"a","resourceVersion":"5"}}`).want(t,
			http.StatusBadRequest, http.StatusInternalServerError)
		equal(t, a.text(t, "message"), "resourceVersion should not be set on objects to be created")
		c.get(t, c.path("v1", "configmaps", "a")).notFound(t)
	}},
	{"a name is generated from generateName where there is no name, which then stays as it is", func(t *testing.T, c *cluster) {
		names := map[string]bool{}
		for range 5 {
			a := c.post(t, c.path("v1", "configmaps"), `{"metadata":{"generateName":"a-"}}`).created(t)
			name := a.text(t, "metadata", "name")
			if !regexp.MustCompile(`^a-[bcdfghjklmnpqrstvwxz2456789]{5}$`).MatchString(name) || a.text(t, "metadata",
				"generateName") != "a-" {
				t.Errorf("the answer is %s", a.Body)
			}
			names[name] = true
		}
		if len(names) != 5 {
			t.Errorf("the names are %v", names)
		}
		a := c.post(t, c.path("v1", "configmaps"), `{"metadata":{"name":"own","generateName":"a-"}}`).created(t)
		equal(t, a.text(t, "metadata", "name"), "own")
		long := strings.Repeat("x", 300)
		c.post(t, c.path("v1", "configmaps"), `{"metadata":{"generateName":"`+long+`"}}`).invalid(t, "metadata.generateName")
		c.post(t, c.path("v1", "configmaps"), `{"metadata":{"generateName":"`+long[:253]+`"}}`).created(t)
		c.post(t, c.path("v1", "configmaps"), `{"metadata":{}}`).invalid(t,
			"metadata.name: Required value: name or generateName is required")
	}},
	{"the uid, the creation time and the name can't be changed, and need not be sent", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		created := c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		for _, a := range []answer{
			c.put(t, path, `{"metadata":{"name":"a"},"data":{"a":"1"}}`),
			c.put(t, path, `{"metadata":{"name":"a","creationTimestamp":"2001-01-01T00:00:00Z"},"data":{"a":"2"}}`),
			c.patch(t, mergePatch, path, `{"metadata":{"creationTimestamp":null,"uid":null},"data":{"a":"3"}}`),
		} {
			a.ok(t)
			equal(t, a.text(t, "metadata", "uid"), created.text(t, "metadata", "uid"))
			equal(t, a.text(t, "metadata", "creationTimestamp"), created.text(t, "metadata", "creationTimestamp"))
		}
		c.put(t, path, `{"metadata":{"name":"a","uid":"other"}}`).conflict(t,
			"Precondition failed: UID in precondition: other, UID in object meta: ")
		c.patch(t, mergePatch, path, `{"metadata":{"uid":"other"}}`).invalid(t, "metadata.uid", "field is immutable")
		for _, kind := range []string{mergePatch, strategicPatch} {
			c.patch(t, kind, path, `{"metadata":{"name":"b"}}`).badRequest(t,
				"the name of the object (b) does not match the name on the URL (a)")
		}
	}},
	{"the generation of what has a desired state is 1, rises with each change of it, and not with others", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, structural)
		controller := manifest(`{metadata: {name: a}, spec: {replicas: 3, selector: {a: b},
			template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)
		for path, object := range map[string]map[string]any{
			c.path("apps/v1", "deployments", "a"):    deployment("a"),
			c.path(groupVersion, "widgets", "a"):     with(widget(groupVersion, "a"), 3, "spec", "replicas"),
			c.path("v1", "replicationcontrollers/a"): controller,
		} {
			generation := func(a answer) any {
				return a.want(t, http.StatusOK, http.StatusCreated).value(t, "metadata", "generation")
			}
			equal(t, generation(c.post(t, collection(path), with(object, 9, "metadata", "generation"))), 1.0)
			equal(t, generation(c.patch(t, mergePatch, path, `{"metadata":{"labels":{"a":"b"}}}`)), 1.0)
			equal(t, generation(c.patch(t, mergePatch, path+"/status", `{"status":{"replicas":2}}`)), 1.0)
			equal(t, generation(c.patch(t, mergePatch, path, `{"spec":{"replicas":4}}`)), 2.0)
			equal(t, generation(c.patch(t, mergePatch, path, `{"spec":{"replicas":4},"metadata":{"generation":9}}`)), 2.0)
			c.patch(t, mergePatch, path+"/scale", `{"spec":{"replicas":5}}`).ok(t)
			equal(t, generation(c.get(t, path)), 3.0)
			// A deletion that begins is a change, too.
			equal(t, generation(c.setFinalizers(t, path, "example.com/one")), 3.0)
			equal(t, generation(c.delete(t, path+"?propagationPolicy=Background")), 4.0)
			c.setFinalizers(t, path).ok(t)
		}
		a := c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		equal(t, a.value(t, "metadata", "generation"), nil)
	}},
	{"a service gets a cluster IP, which never changes, and node ports, and keeps them through updates", func(t *testing.T, c *cluster) {
		path := c.path("v1", "services", "a")
		created := c.post(t, c.path("v1", "services"), with(service("a"), "NodePort", "spec", "type")).created(t)
		ip := created.text(t, "spec", "clusterIP")
		equal(t, created.value(t, "spec", "clusterIPs"), []any{ip})
		port := func(a answer) any { return a.value(t, "spec", "ports").([]any)[0].(map[string]any)["nodePort"] }
		if n, ok := port(created).(float64); !ok || n < 30000 || n > 32767 {
			t.Errorf("the node port is %v", port(created))
		}
		updated := c.put(t, path, with(service("a"), "NodePort", "spec", "type")).ok(t)
		equal(t, updated.text(t, "spec", "clusterIP"), ip)
		equal(t, port(updated), port(created))
		c.put(t, path, with(service("a"), "10.0.0.201", "spec", "clusterIP")).invalid(t, "may not change once set")
		c.post(t, c.path("v1", "services"), with(service("b"), ip, "spec", "clusterIP")).invalid(t, "provided IP is already allocated")
		taken := with(with(service("b"), "NodePort", "spec", "type"), updated.value(t, "spec", "ports"), "spec", "ports")
		c.post(t, c.path("v1", "services"), taken).invalid(t, "provided port is already allocated")
		equal(t, port(c.put(t, path, service("a")).ok(t)), nil)
		eventually(t, "the port is free", func() bool {
			return c.post(t, c.path("v1", "services"), taken).want(t, http.StatusCreated,
				http.StatusUnprocessableEntity).Code == http.StatusCreated
		})
		headless := c.post(t, c.path("v1", "services"), with(service("c"), "None", "spec", "clusterIP")).created(t)
		equal(t, headless.text(t, "spec", "clusterIP"), "None")
	}},
	{"fields that are left out get their defaults, from the kind and from admission", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		a := c.post(t, c.path("v1", "pods"), with(pod("a"), "", "spec", "nodeName")).created(t)
		for field, want := range map[string]any{
			"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
			"terminationGracePeriodSeconds": 30.0,
			"serviceAccountName":            "default", "serviceAccount": "default", "priority": 0.0,
			"preemptionPolicy": "PreemptLowerPriority", "enableServiceLinks": true,
		} {
			equal(t, a.value(t, "spec", field), want)
		}
		equal(t, a.text(t, "status", "phase"), "Pending")
		equal(t, a.text(t, "status", "qosClass"), "BestEffort")
		tolerations, _ := a.value(t, "spec", "tolerations").([]any) // of admission
		if len(tolerations) != 2 {
			t.Errorf("the tolerations are %v", tolerations)
		}
	}},
}
