// Package deletion tests sqube against the documentation of deletion: finalizers, garbage collection, collections, namespaces.
package deletion

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Section "Resource deletion": one object, and the options of a delete; the verb deletecollection; and "Garbage collection", which
// deletes the dependents of an object. kube-apiserver needs kube-controller-manager for the promises about garbage.
func TestDeletion(t *testing.T) {
	kit.ProveOnEngines(t, nil, slices.Concat(deletions, graces, lifecycle, collectionDeletions, cascades, ownerReferences, defaultPolicies, namespaceDeletions)...)
}

var deletions = []kit.Promise{
	{Statement: "deleting an object that is removed at once returns a success status that names it", Proof: func(t *testing.T, c *kit.Cluster) {
		uid := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t).Text(t, "metadata", "uid")
		a := c.Delete(t, c.Path("v1", "configmaps", "a")).OK(t)
		want := map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success",
			"details": map[string]any{"name": "a", "kind": "configmaps", "uid": uid}}
		kit.Equal(t, a.Object(t), want)
		c.Get(t, c.Path("v1", "configmaps", "a")).NotFound(t)

		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(groupVersion, "widgets"), kit.Widget(groupVersion, "a")).Created(t)
		a = c.Delete(t, c.Path(groupVersion, "widgets", "a")).OK(t)
		kit.Equal(t, a.Text(t, "details", "group"), c.Namespace+".example.com")
	}},
	{Statement: "deleting an object with finalizers returns the object with a deletionTimestamp", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("a", "example.com/one")).Created(t)
		a := c.Delete(t, c.Path("v1", "configmaps", "a")).OK(t)
		if a.Text(t, "kind") != "ConfigMap" || a.Text(t, "metadata", "deletionTimestamp") == "" {
			t.Errorf("the response is %s", a.Body)
		}
		kit.Equal(t, a.Value(t, "metadata", "deletionGracePeriodSeconds"), 0.0)
		kit.Equal(t, c.Get(t, c.Path("v1", "configmaps", "a")).Object(t), a.Object(t))
	}},
	{Statement: "deleting objects of some kinds returns their last state", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		unscheduled := kit.With(kit.Pod("a"), "", "spec", "nodeName")
		created := c.Post(t, c.Path("v1", "pods"), unscheduled).Created(t)
		a := c.Delete(t, c.Path("v1", "pods", "a")).OK(t)
		if a.Text(t, "kind") != "Pod" || a.Text(t, "metadata", "uid") != created.Text(t, "metadata", "uid") {
			t.Errorf("the response is %s", a.Body)
		}
		c.Get(t, c.Path("v1", "pods", "a")).NotFound(t)
	}},
	{Statement: "finalizers are removed in any order, and the object with the last one", Proof: func(t *testing.T, c *kit.Cluster) {
		all := []string{"example.com/one", "example.com/two", "example.com/three"}
		for i, order := range [][]string{{all[1], all[2], ""}, {all[0], all[2], ""}, {all[0], all[1], ""}} {
			name := fmt.Sprint("a", i)
			path := c.Path("v1", "configmaps", name)
			c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers(name, all...)).Created(t)
			c.Delete(t, path).OK(t)
			c.SetFinalizers(t, path, order[0], order[1]).OK(t)
			c.SetFinalizers(t, path, order[1]).OK(t)
			c.Get(t, path).OK(t)
			c.SetFinalizers(t, path).OK(t)
			c.Get(t, path).NotFound(t)
		}
	}},
	{Statement: "the finalizers of an object being deleted may be reordered, but none added", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("a", "example.com/one", "example.com/two")).Created(t)
		c.SetFinalizers(t, path, "example.com/one", "example.com/two", "example.com/three").OK(t)
		c.Delete(t, path).OK(t)
		c.SetFinalizers(t, path, "example.com/three", "example.com/two", "example.com/one").OK(t)
		a := c.SetFinalizers(t, path, "example.com/three", "example.com/two", "example.com/four").Invalid(t,
			`metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"example.com/four"}`)
		kit.Equal(t, causes(t, a), []string{"FieldValueForbidden metadata.finalizers"})
	}},
	{Statement: "deleting an object again while it is being deleted changes nothing", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("a", "example.com/one")).Created(t)
		first := c.Delete(t, path).OK(t)
		second := c.Delete(t, path).OK(t)
		kit.Equal(t, second.Object(t), first.Object(t))
		third := c.Send(t, http.MethodDelete, path, nil, map[string]any{"gracePeriodSeconds": 5}).OK(t)
		kit.Equal(t, third.Object(t), first.Object(t))
	}},
	{Statement: "only the server sets deletionTimestamp and deletionGracePeriodSeconds", Proof: func(t *testing.T, c *kit.Cluster) {
		marked := kit.With(kit.ConfigMap("a", nil), "2020-01-01T00:00:00Z", "metadata", "deletionTimestamp")
		marked = kit.With(marked, 30, "metadata", "deletionGracePeriodSeconds")
		created := c.Post(t, c.Path("v1", "configmaps"), marked).Created(t)
		updated := c.Put(t, c.Path("v1", "configmaps", "a"), marked)
		updated.Invalid(t, "metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds")
		for _, field := range []string{"deletionTimestamp", "deletionGracePeriodSeconds"} {
			if value := created.Value(t, "metadata", field); value != nil {
				t.Errorf("%s is %v", field, value)
			}
		}

		path := c.Path("v1", "configmaps", "b")
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("b", "example.com/one")).Created(t)
		deleted := c.Delete(t, path).OK(t)
		kept := c.Patch(t, kit.MergePatch, path, `{"metadata":{"deletionTimestamp":null,"deletionGracePeriodSeconds":null}}`).OK(t)
		kit.Equal(t, kept.Object(t), deleted.Object(t))
	}},
	{Statement: "a delete may have the object's uid and resourceVersion as preconditions", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		created := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		uid, version := created.Text(t, "metadata", "uid"), created.ResourceVersion(t)
		on := func(preconditions map[string]any) kit.Answer {
			return c.Send(t, http.MethodDelete, path, nil, map[string]any{"preconditions": preconditions})
		}
		on(map[string]any{"uid": "other"}).Conflict(t,
			"the UID in the precondition (other) does not match the UID in record ("+uid+"). The object might have been deleted and then recreated")
		on(map[string]any{"resourceVersion": "1"}).Conflict(t,
			"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ("+version+"). The object might have been modified")
		on(map[string]any{"uid": uid, "resourceVersion": "1"}).Conflict(t)
		c.Get(t, path).OK(t)
		on(map[string]any{"uid": uid, "resourceVersion": version}).OK(t)
		c.Get(t, path).NotFound(t)
	}},
	{Statement: "the options of a delete are taken from the body in JSON or YAML, or else from the query", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		c.Send(t, http.MethodDelete, path+"?dryRun=All", nil, nil).OK(t)
		c.Send(t, http.MethodDelete, path, kit.Header{"Content-Type", "application/yaml"}, "dryRun: [All]").OK(t)
		options := `{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"]}`
		c.Send(t, http.MethodDelete, path, nil, options).OK(t)
		c.Send(t, http.MethodDelete, path, nil, strings.Replace(options, "v1", "meta.k8s.io/v1", 1)).OK(t)
		c.Get(t, path).OK(t)
		c.Send(t, http.MethodDelete, path+"?dryRun=All", nil, `{}`).OK(t)
		c.Get(t, path).NotFound(t)
	}},
	{Statement: "invalid options are rejected, and nothing is deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		for body, message := range map[string]string{
			`{"propagationPolicy":"Sideways"}`:                           `propagationPolicy: Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil"`,
			`{"propagationPolicy":"Background","orphanDependents":true}`: `orphanDependents and deletionPropagation cannot be both set`,
			`{"dryRun":["Some"]}`:                                        `dryRun: Unsupported value: ["Some"]: supported values: "All"`,
		} {
			c.Send(t, http.MethodDelete, path, nil, body).Invalid(t, "DeleteOptions.meta.k8s.io", message)
		}
		for query, code := range map[string]int{
			"propagationPolicy=Sideways":                         http.StatusUnprocessableEntity,
			"propagationPolicy=Background&orphanDependents=true": http.StatusUnprocessableEntity,
			"dryRun=Some": http.StatusUnprocessableEntity,
			"gracePeriodSeconds=" + url.QueryEscape("a long time"): http.StatusBadRequest,
		} {
			c.Delete(t, path+"?"+query).Want(t, code)
		}
		for _, body := range []string{`{"apiVersion":"v1","kind":"ConfigMap"}`, `{"gracePeriodSeconds":"a"}`, `[]`, `{`} {
			c.Send(t, http.MethodDelete, path, nil, body).BadRequest(t)
		}
		c.Get(t, path).OK(t)
	}},
	{Statement: "watchers receive the start of a deletion, each removed finalizer, and the end, with rising resourceVersions", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		created := c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("a", "example.com/one", "example.com/two")).Created(t)
		watch := c.Watch(t, c.Path("v1", "configmaps")+"?watch=true&fieldSelector=metadata.name=a&resourceVersion="+created.ResourceVersion(t))
		deleted := c.Delete(t, path).OK(t)
		shorter := c.SetFinalizers(t, path, "example.com/two").OK(t)
		c.SetFinalizers(t, path).OK(t)

		first, second, last := watch.Next(t), watch.Next(t), watch.Next(t)
		if first.Type != "MODIFIED" || second.Type != "MODIFIED" || last.Type != "DELETED" {
			t.Fatalf("the events are %s, %s, %s", first.Type, second.Type, last.Type)
		}
		kit.Equal(t, first.Object, deleted.Object(t))
		kit.Equal(t, second.Object, shorter.Object(t))
		if last.ResourceVersion() == second.ResourceVersion() {
			t.Errorf("the last event has the resourceVersion %s of the previous one", last.ResourceVersion())
		}
	}},
}

// causes returns the reasons and fields of an error, in order. Some validations run twice, and report everything twice.
func causes(t testing.TB, a kit.Answer) []string {
	t.Helper()
	var found []string
	list, _ := a.Value(t, "details", "causes").([]any)
	for _, cause := range list {
		c := cause.(map[string]any)
		found = append(found, strings.TrimSpace(fmt.Sprint(c["reason"], " ", c["field"])))
	}
	return slices.Compact(found)
}

// graces are the promises about deletionGracePeriodSeconds, which only pods have.
var graces = []kit.Promise{
	{Statement: "a pod on a node gets the grace period in its spec, and exists that long", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		for name, seconds := range map[string]float64{"usual": 30, "own": 7} {
			body := kit.Pod(name)
			if name == "own" {
				body = kit.With(body, 7, "spec", "terminationGracePeriodSeconds")
			}
			c.Post(t, c.Path("v1", "pods"), body).Created(t)
			before := time.Now().Add(-2 * time.Second) // times are in whole seconds
			a := c.Delete(t, c.Path("v1", "pods", name)).OK(t)
			kit.Equal(t, a.Value(t, "metadata", "deletionGracePeriodSeconds"), seconds)
			end, err := time.Parse(time.RFC3339, a.Text(t, "metadata", "deletionTimestamp"))
			if err != nil || end.Before(before.Add(time.Duration(seconds)*time.Second)) {
				t.Errorf("the deletion of %s ends %s, %v", name, end, err)
			}
			c.Get(t, c.Path("v1", "pods", name)).OK(t)
		}
	}},
	{Statement: "another delete may shorten a grace period, but never extend it", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		path := c.Path("v1", "pods", "a")
		c.Post(t, c.Path("v1", "pods"), kit.Pod("a")).Created(t)
		c.Delete(t, path).OK(t)
		for _, step := range []struct{ asked, got float64 }{{3600, 30}, {30, 30}, {20, 20}, {25, 20}, {10, 10}} {
			a := c.Send(t, http.MethodDelete, path, nil, map[string]any{"gracePeriodSeconds": step.asked}).OK(t)
			kit.Equal(t, a.Value(t, "metadata", "deletionGracePeriodSeconds"), step.got)
		}
	}},
	{Statement: "a grace period of zero removes a pod at once, on the first delete or a later one", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		for _, before := range []string{"", "?gracePeriodSeconds=60"} {
			path := c.Path("v1", "pods", "a")
			c.Post(t, c.Path("v1", "pods"), kit.Pod("a")).Created(t)
			if before != "" {
				kit.Equal(t, c.Delete(t, path+before).OK(t).Value(t, "metadata", "deletionGracePeriodSeconds"), 60.0)
			}
			c.Delete(t, path+"?gracePeriodSeconds=0").OK(t)
			c.Get(t, path).NotFound(t)
		}
	}},
	{Statement: "a negative grace period counts as one second", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "pods"), kit.Pod("a")).Created(t)
		a := c.Delete(t, c.Path("v1", "pods", "a")+"?gracePeriodSeconds=-5").OK(t)
		kit.Equal(t, a.Value(t, "metadata", "deletionGracePeriodSeconds"), 1.0)
	}},
	{Statement: "a pod without a node, or that has ended, is removed at once", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "pods"), kit.With(kit.Pod("unscheduled"), "", "spec", "nodeName")).Created(t)
		c.Post(t, c.Path("v1", "pods"), kit.Pod("ended")).Created(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "pods", "ended", "status"), `{"status":{"phase":"Succeeded"}}`).OK(t)
		for _, name := range []string{"unscheduled", "ended"} {
			c.Delete(t, c.Path("v1", "pods", name)).OK(t)
			c.Get(t, c.Path("v1", "pods", name)).NotFound(t)
		}
	}},
	{Statement: "an object with finalizers and a grace period exists until both are over", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		for name, graceFirst := range map[string]bool{"grace-first": true, "finalizers-first": false} {
			path := c.Path("v1", "pods", name)
			c.Post(t, c.Path("v1", "pods"), kit.With(kit.Pod(name), []string{"example.com/one"}, "metadata", "finalizers")).Created(t)
			kit.Equal(t, c.Delete(t, path).OK(t).Value(t, "metadata", "deletionGracePeriodSeconds"), 30.0)
			if graceFirst {
				kit.Equal(t, c.Delete(t, path+"?gracePeriodSeconds=0").OK(t).Value(t, "metadata", "deletionGracePeriodSeconds"), 0.0)
				c.Get(t, path).OK(t)
				c.SetFinalizers(t, path).OK(t)
			} else {
				c.SetFinalizers(t, path).OK(t)
				c.Get(t, path).OK(t)
				c.Delete(t, path+"?gracePeriodSeconds=0").OK(t)
			}
			c.Get(t, path).NotFound(t)
		}
	}},
	{Statement: "kinds without graceful deletion ignore a grace period", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		c.Delete(t, c.Path("v1", "configmaps", "a")+"?gracePeriodSeconds=60").OK(t)
		c.Get(t, c.Path("v1", "configmaps", "a")).NotFound(t)
	}},
}
