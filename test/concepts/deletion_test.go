package concepts

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// Section "Resource deletion": one object, and the options of a delete. Lists of objects are in collections_test.go, what
// depends on an object in garbage_test.go.
func TestDeletion(t *testing.T) {
	prove(t, nil, slices.Concat(deletions, graces, lifecycle)...)
}

// finalized is a ConfigMap with finalizers.
func finalized(name string, finalizers ...string) map[string]any {
	return with(configMap(name, map[string]string{"a": "1"}), finalizers, "metadata", "finalizers")
}

// setFinalizers replaces an object's finalizers.
func (c *cluster) setFinalizers(t testing.TB, path string, finalizers ...string) answer {
	t.Helper()
	return c.patch(t, mergePatch, path, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
}

var deletions = []promise{
	{"a delete of what goes at once is answered with a status of success that names it", func(t *testing.T, c *cluster) {
		uid := c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t).text(t, "metadata", "uid")
		a := c.delete(t, c.path("v1", "configmaps", "a")).ok(t)
		want := map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success",
			"details": map[string]any{"name": "a", "kind": "configmaps", "uid": uid}}
		equal(t, a.object(t), want)
		c.get(t, c.path("v1", "configmaps", "a")).notFound(t)

		groupVersion := c.widgets(t, anySchema)
		c.post(t, c.path(groupVersion, "widgets"), widget(groupVersion, "a")).created(t)
		a = c.delete(t, c.path(groupVersion, "widgets", "a")).ok(t)
		if group := a.text(t, "details", "group"); group != c.namespace+".example.com" {
			t.Errorf("the group is %q", group)
		}
	}},
	{"a delete of what does not exist is answered with 404 that names it", func(t *testing.T, c *cluster) {
		a := c.delete(t, c.path("v1", "configmaps", "none")).notFound(t, `configmaps "none" not found`)
		equal(t, a.value(t, "details"), map[string]any{"name": "none", "kind": "configmaps"})
	}},
	{"a delete of what has finalizers is answered with the object, whose deletionTimestamp is set", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), finalized("a", "example.com/one")).created(t)
		a := c.delete(t, c.path("v1", "configmaps", "a")).ok(t)
		if a.text(t, "kind") != "ConfigMap" || a.text(t, "metadata", "deletionTimestamp") == "" {
			t.Errorf("the answer is %s", a.Body)
		}
		equal(t, a.value(t, "metadata", "deletionGracePeriodSeconds"), 0.0)
		equal(t, c.get(t, c.path("v1", "configmaps", "a")).object(t), a.object(t))
	}},
	{"a delete of some kinds is answered with the object as it was last", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		unscheduled := with(pod("a"), "", "spec", "nodeName")
		created := c.post(t, c.path("v1", "pods"), unscheduled).created(t)
		a := c.delete(t, c.path("v1", "pods", "a")).ok(t)
		if a.text(t, "kind") != "Pod" || a.text(t, "metadata", "uid") != created.text(t, "metadata", "uid") {
			t.Errorf("the answer is %s", a.Body)
		}
		c.get(t, c.path("v1", "pods", "a")).notFound(t)
	}},
	{"finalizers are removed in any order, and with the last the object", func(t *testing.T, c *cluster) {
		all := []string{"example.com/one", "example.com/two", "example.com/three"}
		for i, order := range [][]string{{all[1], all[2], ""}, {all[0], all[2], ""}, {all[0], all[1], ""}} {
			name := fmt.Sprint("a", i)
			path := c.path("v1", "configmaps", name)
			c.post(t, c.path("v1", "configmaps"), finalized(name, all...)).created(t)
			c.delete(t, path).ok(t)
			c.setFinalizers(t, path, order[0], order[1]).ok(t)
			c.setFinalizers(t, path, order[1]).ok(t)
			c.get(t, path).ok(t)
			c.setFinalizers(t, path).ok(t)
			c.get(t, path).notFound(t)
		}
	}},
	{"the finalizers of what is being deleted may be put in another order, but not be added to", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, c.path("v1", "configmaps"), finalized("a", "example.com/one", "example.com/two")).created(t)
		c.setFinalizers(t, path, "example.com/one", "example.com/two", "example.com/three").ok(t)
		c.delete(t, path).ok(t)
		c.setFinalizers(t, path, "example.com/three", "example.com/two", "example.com/one").ok(t)
		a := c.setFinalizers(t, path, "example.com/three", "example.com/two", "example.com/four").invalid(t,
			`metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"example.com/four"}`)
		equal(t, causes(t, a), []string{"FieldValueForbidden metadata.finalizers"})
	}},
	{"an object may be deleted again while it is being deleted, which changes nothing", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, c.path("v1", "configmaps"), finalized("a", "example.com/one")).created(t)
		first := c.delete(t, path).ok(t)
		second := c.delete(t, path).ok(t)
		equal(t, second.object(t), first.object(t))
		third := c.send(t, http.MethodDelete, path, nil, map[string]any{"gracePeriodSeconds": 5}).ok(t)
		equal(t, third.object(t), first.object(t))
	}},
	{"nobody but the server sets deletionTimestamp and deletionGracePeriodSeconds", func(t *testing.T, c *cluster) {
		marked := with(configMap("a", nil), "2020-01-01T00:00:00Z", "metadata", "deletionTimestamp")
		marked = with(marked, 30, "metadata", "deletionGracePeriodSeconds")
		created := c.post(t, c.path("v1", "configmaps"), marked).created(t)
		updated := c.put(t, c.path("v1", "configmaps", "a"), marked)
		updated.invalid(t, "metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds")
		for _, field := range []string{"deletionTimestamp", "deletionGracePeriodSeconds"} {
			if value := created.value(t, "metadata", field); value != nil {
				t.Errorf("%s is %v", field, value)
			}
		}

		path := c.path("v1", "configmaps", "b")
		c.post(t, c.path("v1", "configmaps"), finalized("b", "example.com/one")).created(t)
		deleted := c.delete(t, path).ok(t)
		kept := c.patch(t, mergePatch, path, `{"metadata":{"deletionTimestamp":null,"deletionGracePeriodSeconds":null}}`).ok(t)
		equal(t, kept.object(t), deleted.object(t))
	}},
	{"a delete may have the object's uid and resourceVersion as preconditions", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		created := c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		uid, version := created.text(t, "metadata", "uid"), created.version(t)
		on := func(preconditions map[string]any) answer {
			return c.send(t, http.MethodDelete, path, nil, map[string]any{"preconditions": preconditions})
		}
		on(map[string]any{"uid": "other"}).conflict(t,
			"the UID in the precondition (other) does not match the UID in record ("+uid+"). The object might have been deleted and then recreated")
		on(map[string]any{"resourceVersion": "1"}).conflict(t,
			"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ("+version+"). The object might have been modified")
		on(map[string]any{"uid": uid, "resourceVersion": "1"}).conflict(t)
		c.get(t, path).ok(t)
		on(map[string]any{"uid": uid, "resourceVersion": version}).ok(t)
		c.get(t, path).notFound(t)
	}},
	{"the options of a delete are taken from the body in JSON or YAML, or else from the query", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		c.send(t, http.MethodDelete, path+"?dryRun=All", nil, nil).ok(t)
		c.send(t, http.MethodDelete, path, header{"Content-Type", "application/yaml"}, "dryRun: [All]").ok(t)
		options := `{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"]}`
		c.send(t, http.MethodDelete, path, nil, options).ok(t)
		c.send(t, http.MethodDelete, path, nil, strings.Replace(options, "v1", "meta.k8s.io/v1", 1)).ok(t)
		c.get(t, path).ok(t)
		c.send(t, http.MethodDelete, path+"?dryRun=All", nil, `{}`).ok(t)
		c.get(t, path).notFound(t)
	}},
	{"options that make no sense are refused, and nothing is deleted", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		for body, message := range map[string]string{
			`{"propagationPolicy":"Sideways"}`:                           `propagationPolicy: Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil"`,
			`{"propagationPolicy":"Background","orphanDependents":true}`: `orphanDependents and deletionPropagation cannot be both set`,
			`{"dryRun":["Some"]}`:                                        `dryRun: Unsupported value: ["Some"]: supported values: "All"`,
		} {
			c.send(t, http.MethodDelete, path, nil, body).invalid(t, "DeleteOptions.meta.k8s.io", message)
		}
		for query, code := range map[string]int{
			"propagationPolicy=Sideways":                         http.StatusUnprocessableEntity,
			"propagationPolicy=Background&orphanDependents=true": http.StatusUnprocessableEntity,
			"dryRun=Some": http.StatusUnprocessableEntity,
			"gracePeriodSeconds=" + url.QueryEscape("a long time"): http.StatusBadRequest,
		} {
			c.delete(t, path+"?"+query).want(t, code)
		}
		for _, body := range []string{`{"apiVersion":"v1","kind":"ConfigMap"}`, `{"gracePeriodSeconds":"a"}`, `[]`, `{`} {
			c.send(t, http.MethodDelete, path, nil, body).badRequest(t)
		}
		c.get(t, path).ok(t)
	}},
	{"watchers see that a deletion began, each finalizer that goes, and the end, with rising versions", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		created := c.post(t, c.path("v1", "configmaps"), finalized("a", "example.com/one", "example.com/two")).created(t)
		watch := c.watch(t, c.path("v1", "configmaps")+"?watch=true&fieldSelector=metadata.name=a&resourceVersion="+created.version(t))
		deleted := c.delete(t, path).ok(t)
		shorter := c.setFinalizers(t, path, "example.com/two").ok(t)
		c.setFinalizers(t, path).ok(t)

		first, second, last := watch.next(t), watch.next(t), watch.next(t)
		if first.Type != "MODIFIED" || second.Type != "MODIFIED" || last.Type != "DELETED" {
			t.Fatalf("the events are %s, %s, %s", first.Type, second.Type, last.Type)
		}
		equal(t, first.Object, deleted.object(t))
		equal(t, second.Object, shorter.object(t))
		if last.version() == second.version() {
			t.Errorf("the end has the version %s of what came before", last.version())
		}
	}},
}

// causes are the reasons and fields that a refusal names, in order. Some validations run twice, and say everything twice.
func causes(t testing.TB, a answer) []string {
	t.Helper()
	var found []string
	list, _ := a.value(t, "details", "causes").([]any)
	for _, cause := range list {
		c := cause.(map[string]any)
		found = append(found, strings.TrimSpace(fmt.Sprint(c["reason"], " ", c["field"])))
	}
	return slices.Compact(found)
}

// graces are the promises about deletionGracePeriodSeconds, which only pods have.
var graces = []promise{
	{"a pod on a node gets the grace period that its spec gives it, and stays that long", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		for name, seconds := range map[string]float64{"usual": 30, "own": 7} {
			body := pod(name)
			if name == "own" {
				body = with(body, 7, "spec", "terminationGracePeriodSeconds")
			}
			c.post(t, c.path("v1", "pods"), body).created(t)
			before := time.Now().Add(-2 * time.Second) // times are in whole seconds
			a := c.delete(t, c.path("v1", "pods", name)).ok(t)
			equal(t, a.value(t, "metadata", "deletionGracePeriodSeconds"), seconds)
			end, err := time.Parse(time.RFC3339, a.text(t, "metadata", "deletionTimestamp"))
			if err != nil || end.Before(before.Add(time.Duration(seconds)*time.Second)) {
				t.Errorf("the deletion of %s ends %s, %v", name, end, err)
			}
			c.get(t, c.path("v1", "pods", name)).ok(t)
		}
	}},
	{"a grace period may be shortened by another delete, never made longer", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		path := c.path("v1", "pods", "a")
		c.post(t, c.path("v1", "pods"), pod("a")).created(t)
		c.delete(t, path).ok(t)
		for _, step := range []struct{ asked, got float64 }{{3600, 30}, {30, 30}, {20, 20}, {25, 20}, {10, 10}} {
			a := c.send(t, http.MethodDelete, path, nil, map[string]any{"gracePeriodSeconds": step.asked}).ok(t)
			equal(t, a.value(t, "metadata", "deletionGracePeriodSeconds"), step.got)
		}
	}},
	{"a grace period of zero ends a pod at once, on the first delete or on a later one", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		for _, before := range []string{"", "?gracePeriodSeconds=60"} {
			path := c.path("v1", "pods", "a")
			c.post(t, c.path("v1", "pods"), pod("a")).created(t)
			if before != "" {
				equal(t, c.delete(t, path+before).ok(t).value(t, "metadata", "deletionGracePeriodSeconds"), 60.0)
			}
			c.delete(t, path+"?gracePeriodSeconds=0").ok(t)
			c.get(t, path).notFound(t)
		}
	}},
	{"a negative grace period is taken for one of one second", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "pods"), pod("a")).created(t)
		a := c.delete(t, c.path("v1", "pods", "a")+"?gracePeriodSeconds=-5").ok(t)
		equal(t, a.value(t, "metadata", "deletionGracePeriodSeconds"), 1.0)
	}},
	{"a pod that is on no node, or that has ended, goes at once", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "pods"), with(pod("unscheduled"), "", "spec", "nodeName")).created(t)
		c.post(t, c.path("v1", "pods"), pod("ended")).created(t)
		c.patch(t, mergePatch, c.path("v1", "pods", "ended", "status"), `{"status":{"phase":"Succeeded"}}`).ok(t)
		for _, name := range []string{"unscheduled", "ended"} {
			c.delete(t, c.path("v1", "pods", name)).ok(t)
			c.get(t, c.path("v1", "pods", name)).notFound(t)
		}
	}},
	{"an object with finalizers and a grace period stays until both are over", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		for name, graceFirst := range map[string]bool{"grace-first": true, "finalizers-first": false} {
			path := c.path("v1", "pods", name)
			c.post(t, c.path("v1", "pods"), with(pod(name), []string{"example.com/one"}, "metadata", "finalizers")).created(t)
			equal(t, c.delete(t, path).ok(t).value(t, "metadata", "deletionGracePeriodSeconds"), 30.0)
			if graceFirst {
				equal(t, c.delete(t, path+"?gracePeriodSeconds=0").ok(t).value(t, "metadata", "deletionGracePeriodSeconds"), 0.0)
				c.get(t, path).ok(t)
				c.setFinalizers(t, path).ok(t)
			} else {
				c.setFinalizers(t, path).ok(t)
				c.get(t, path).ok(t)
				c.delete(t, path+"?gracePeriodSeconds=0").ok(t)
			}
			c.get(t, path).notFound(t)
		}
	}},
	{"kinds without graceful deletion ignore a grace period", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		c.delete(t, c.path("v1", "configmaps", "a")+"?gracePeriodSeconds=60").ok(t)
		c.get(t, c.path("v1", "configmaps", "a")).notFound(t)
	}},
}
