package writes

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// Section "Generated values": what the server sets, and what happens if a client sets it.
var generatedValues = []kit.Promise{
	{Statement: "a new object gets a uid, a creation time and a resourceVersion, whatever the client sends", Proof: func(t *testing.T, c *kit.Cluster) {
		before := time.Now().Add(-2 * time.Second) // times are in whole seconds
		object := kit.Manifest(`{metadata: {name: a, uid: mine, creationTimestamp: "2001-01-01T00:00:00Z", generation: 7, selfLink: /mine}}`)
		a := c.Post(t, c.Path("v1", "configmaps"), object).Created(t)
		if uid := a.Text(t, "metadata", "uid"); !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(uid) {
			t.Errorf("the uid is %s", uid)
		}
		if at, err := time.Parse(time.RFC3339, a.Text(t, "metadata",
			"creationTimestamp")); err != nil || at.Before(before) || at.After(time.Now().Add(time.Minute)) {
			t.Errorf("it was created %s, %v", at, err)
		}
		if a.ResourceVersion(t) == "" || a.Value(t, "metadata", "selfLink") != nil {
			t.Errorf("the response is %s", a.Body)
		}
	}},
	{Statement: "a create with a resourceVersion is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		// kube-apiserver returns 500 without a reason.
		a := c.Post(t, c.Path("v1", "configmaps"), `{"metadata":{"name":"a","resourceVersion":"5"}}`).Want(t,
			http.StatusBadRequest, http.StatusInternalServerError)
		kit.Equal(t, a.Text(t, "message"), "resourceVersion should not be set on objects to be created")
		c.Get(t, c.Path("v1", "configmaps", "a")).NotFound(t)
	}},
	{Statement: "a Job without labels gets those of its template, some of which the server sets, and can be selected by them", Proof: func(t *testing.T, c *kit.Cluster) {
		jobs := c.Path("batch/v1", "jobs")
		job := kit.Manifest(`{metadata: {name: once}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}`)
		kit.Equal(t, c.Post(t, jobs, job).Created(t).Text(t, "metadata", "labels", "job-name"), "once")
		kit.Equal(t, strings.Join(c.Get(t, jobs+"?labelSelector=job-name%3Donce").OK(t).Names(t), " "), "once")
		c.Patch(t, kit.MergePatch, c.Path("batch/v1", "jobs", "once"), `{"metadata":{"labels":null}}`).OK(t)
		kit.Equal(t, c.Get(t, c.Path("batch/v1", "jobs", "once")).OK(t).Text(t, "metadata", "labels", "job-name"), "once")
	}},
	{Statement: "the uid, the creation time and the name are immutable, and need not be sent", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		created := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		for _, a := range []kit.Answer{
			c.Put(t, path, `{"metadata":{"name":"a"},"data":{"a":"1"}}`),
			c.Put(t, path, `{"metadata":{"name":"a","creationTimestamp":"2001-01-01T00:00:00Z"},"data":{"a":"2"}}`),
			c.Patch(t, kit.MergePatch, path, `{"metadata":{"creationTimestamp":null,"uid":null},"data":{"a":"3"}}`),
		} {
			a.OK(t)
			kit.Equal(t, a.Text(t, "metadata", "uid"), created.Text(t, "metadata", "uid"))
			kit.Equal(t, a.Text(t, "metadata", "creationTimestamp"), created.Text(t, "metadata", "creationTimestamp"))
		}
		c.Put(t, path, `{"metadata":{"name":"a","uid":"other"}}`).Conflict(t,
			"Precondition failed: UID in precondition: other, UID in object meta: ")
		c.Patch(t, kit.MergePatch, path, `{"metadata":{"uid":"other"}}`).Invalid(t, "metadata.uid", "field is immutable")
		for _, kind := range []string{kit.MergePatch, kit.StrategicPatch} {
			c.Patch(t, kind, path, `{"metadata":{"name":"b"}}`).BadRequest(t,
				"the name of the object (b) does not match the name on the URL (a)")
		}
	}},
	{Statement: "an object's generation starts at 1 and rises only with changes of its spec", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.StructuralSchema)
		controller := kit.Manifest(`{metadata: {name: a}, spec: {replicas: 3, selector: {a: b},
			template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)
		for path, object := range map[string]map[string]any{
			c.Path("apps/v1", "deployments", "a"):    kit.Deployment("a"),
			c.Path(groupVersion, "widgets", "a"):     kit.With(kit.Widget(groupVersion, "a"), 3, "spec", "replicas"),
			c.Path("v1", "replicationcontrollers/a"): controller,
		} {
			generation := func(a kit.Answer) any {
				return a.Want(t, http.StatusOK, http.StatusCreated).Value(t, "metadata", "generation")
			}
			kit.Equal(t, generation(c.Post(t, kit.CollectionOf(path), kit.With(object, 9, "metadata", "generation"))), 1.0)
			kit.Equal(t, generation(c.Patch(t, kit.MergePatch, path, `{"metadata":{"labels":{"a":"b"}}}`)), 1.0)
			kit.Equal(t, generation(c.Patch(t, kit.MergePatch, path+"/status", `{"status":{"replicas":2}}`)), 1.0)
			kit.Equal(t, generation(c.Patch(t, kit.MergePatch, path, `{"spec":{"replicas":4}}`)), 2.0)
			kit.Equal(t, generation(c.Patch(t, kit.MergePatch, path, `{"spec":{"replicas":4},"metadata":{"generation":9}}`)), 2.0)
			c.Patch(t, kit.MergePatch, path+"/scale", `{"spec":{"replicas":5}}`).OK(t)
			kit.Equal(t, generation(c.Get(t, path)), 3.0)
			// The start of a deletion is a change, too.
			kit.Equal(t, generation(c.SetFinalizers(t, path, "example.com/one")), 3.0)
			kit.Equal(t, generation(c.Delete(t, path+"?propagationPolicy=Background")), 4.0)
			c.SetFinalizers(t, path).OK(t)
		}
		a := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		kit.Equal(t, a.Value(t, "metadata", "generation"), nil)
	}},
	{Statement: "a service gets a cluster IP, which is immutable, and node ports, which updates keep", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "services", "a")
		created := c.Post(t, c.Path("v1", "services"), kit.With(kit.Service("a"), "NodePort", "spec", "type")).Created(t)
		ip := created.Text(t, "spec", "clusterIP")
		kit.Equal(t, created.Value(t, "spec", "clusterIPs"), []any{ip})
		port := func(a kit.Answer) any { return a.Value(t, "spec", "ports").([]any)[0].(map[string]any)["nodePort"] }
		if n, ok := port(created).(float64); !ok || n < 30000 || n > 32767 {
			t.Errorf("the node port is %v", port(created))
		}
		updated := c.Put(t, path, kit.With(kit.Service("a"), "NodePort", "spec", "type")).OK(t)
		kit.Equal(t, updated.Text(t, "spec", "clusterIP"), ip)
		kit.Equal(t, port(updated), port(created))
		c.Put(t, path, kit.With(kit.Service("a"), "10.0.0.201", "spec", "clusterIP")).Invalid(t, "may not change once set")
		c.Post(t, c.Path("v1", "services"), kit.With(kit.Service("b"), ip, "spec", "clusterIP")).Invalid(t, "provided IP is already allocated")
		taken := kit.With(kit.With(kit.Service("b"), "NodePort", "spec", "type"), updated.Value(t, "spec", "ports"), "spec", "ports")
		c.Post(t, c.Path("v1", "services"), taken).Invalid(t, "provided port is already allocated")
		kit.Equal(t, port(c.Put(t, path, kit.Service("a")).OK(t)), nil)
		harness.Eventually(t, "the port is free", func() bool {
			return c.Post(t, c.Path("v1", "services"), taken).Want(t, http.StatusCreated,
				http.StatusUnprocessableEntity).Code == http.StatusCreated
		})
		headless := c.Post(t, c.Path("v1", "services"), kit.With(kit.Service("c"), "None", "spec", "clusterIP")).Created(t)
		kit.Equal(t, headless.Text(t, "spec", "clusterIP"), "None")
	}},
	{Statement: "omitted fields get their defaults, from the kind and from admission", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		a := c.Post(t, c.Path("v1", "pods"), kit.With(kit.Pod("a"), "", "spec", "nodeName")).Created(t)
		for field, want := range map[string]any{
			"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
			"terminationGracePeriodSeconds": 30.0,
			"serviceAccountName":            "default", "serviceAccount": "default", "priority": 0.0,
			"preemptionPolicy": "PreemptLowerPriority", "enableServiceLinks": true,
		} {
			kit.Equal(t, a.Value(t, "spec", field), want)
		}
		kit.Equal(t, a.Text(t, "status", "phase"), "Pending")
		kit.Equal(t, a.Text(t, "status", "qosClass"), "BestEffort")
		tolerations, _ := a.Value(t, "spec", "tolerations").([]any) // of admission
		if len(tolerations) != 2 {
			t.Errorf("the tolerations are %v", tolerations)
		}
	}},
}
