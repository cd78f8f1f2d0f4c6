package concepts

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// "Garbage collection", which deletion leaves the dependents of an object to. kube-apiserver keeps these promises together
// with kube-controller-manager.
func TestGarbageCollection(t *testing.T) {
	prove(t, nil, slices.Concat(cascades, ownerReferences, defaultPolicies, namespaceDeletions)...)
}

// own is the object with one more owner, that of the answer.
func own(t testing.TB, object map[string]any, owner answer, block bool) map[string]any {
	t.Helper()
	references, _ := object["metadata"].(map[string]any)["ownerReferences"].([]any)
	return with(object, append(references, map[string]any{
		"apiVersion": owner.text(t, "apiVersion"), "kind": owner.text(t, "kind"),
		"name": owner.text(t, "metadata", "name"), "uid": owner.text(t, "metadata", "uid"), "blockOwnerDeletion": block,
	}), "metadata", "ownerReferences")
}

// family makes the ConfigMap owner and its dependents child, which blocks the owner's deletion in the foreground, and loose,
// which does not. Both have a finalizer, so that they stay until the test lets them go.
func (c *cluster) family(t *testing.T) (owner answer) {
	t.Helper()
	configMaps := c.path("v1", "configmaps")
	owner = c.post(t, configMaps, with(configMap("owner", nil), "v1", "apiVersion")).created(t)
	c.post(t, configMaps, own(t, finalized("child", "example.com/one"), owner, true)).created(t)
	c.post(t, configMaps, own(t, finalized("loose", "example.com/one"), owner, false)).created(t)
	return owner
}

// deletes waits until an object is marked as being deleted.
func (c *cluster) deletes(t *testing.T, path string) {
	t.Helper()
	eventually(t, path+" is being deleted", func() bool {
		return c.get(t, path).ok(t).value(t, "metadata", "deletionTimestamp") != nil
	})
}

// orphaned waits until an object that exists has no owners.
func (c *cluster) orphaned(t *testing.T, path string) {
	t.Helper()
	eventually(t, path+" has no owners", func() bool {
		a := c.get(t, path).ok(t)
		return a.value(t, "metadata", "ownerReferences") == nil && a.value(t, "metadata", "deletionTimestamp") == nil
	})
}

var cascades = []promise{
	{"in the background, an owner goes at once and its dependents after it", func(t *testing.T, c *cluster) {
		for _, query := range []string{"", "?propagationPolicy=Background", "?orphanDependents=false"} {
			c.family(t)
			c.delete(t, c.path("v1", "configmaps", "owner")+query).ok(t)
			c.get(t, c.path("v1", "configmaps", "owner")).notFound(t)
			for _, name := range []string{"child", "loose"} {
				path := c.path("v1", "configmaps", name)
				c.deletes(t, path)
				c.setFinalizers(t, path).ok(t)
				c.gone(t, path)
			}
		}
	}},
	{"in the foreground, an owner stays, being deleted, until the dependents that block it are gone", func(t *testing.T, c *cluster) {
		c.family(t)
		owner := c.path("v1", "configmaps", "owner")
		a := c.delete(t, owner+"?propagationPolicy=Foreground").ok(t)
		equal(t, a.value(t, "metadata", "finalizers"), []any{"foregroundDeletion"})
		if a.value(t, "metadata", "deletionTimestamp") == nil {
			t.Errorf("it is not being deleted: %s", a.Body)
		}
		c.deletes(t, c.path("v1", "configmaps", "child"))
		c.deletes(t, c.path("v1", "configmaps", "loose"))
		c.get(t, owner).ok(t)
		c.setFinalizers(t, c.path("v1", "configmaps", "child")).ok(t)
		c.gone(t, owner)
		c.get(t, c.path("v1", "configmaps", "loose")).ok(t)
	}},
	{"an owner that is orphaned goes, and its dependents stay without it", func(t *testing.T, c *cluster) {
		for _, query := range []string{"propagationPolicy=Orphan", "orphanDependents=true"} {
			c.family(t)
			a := c.delete(t, c.path("v1", "configmaps", "owner")+"?"+query).ok(t)
			equal(t, a.value(t, "metadata", "finalizers"), []any{"orphan"})
			c.gone(t, c.path("v1", "configmaps", "owner"))
			for _, name := range []string{"child", "loose"} {
				c.orphaned(t, c.path("v1", "configmaps", name))
				c.setFinalizers(t, c.path("v1", "configmaps", name)).ok(t)
				c.delete(t, c.path("v1", "configmaps", name)).ok(t)
			}
		}
	}},
	{"a later delete may change the policy of one that goes on", func(t *testing.T, c *cluster) {
		c.family(t)
		owner := c.path("v1", "configmaps", "owner")
		c.delete(t, owner+"?propagationPolicy=Foreground").ok(t)
		a := c.delete(t, owner+"?propagationPolicy=Background").ok(t)
		equal(t, a.text(t, "kind"), "Status")
		c.get(t, owner).notFound(t)
	}},
	{"a dependent of several owners goes with the last of them", func(t *testing.T, c *cluster) {
		configMaps := c.path("v1", "configmaps")
		one := c.post(t, configMaps, with(configMap("one", nil), "v1", "apiVersion")).created(t)
		two := c.post(t, configMaps, with(configMap("two", nil), "v1", "apiVersion")).created(t)
		c.post(t, configMaps, own(t, own(t, configMap("child", nil), one, true), two, true)).created(t)
		c.delete(t, configMaps+"/one").ok(t)
		eventually(t, "the child has one owner", func() bool {
			left, _ := c.get(t, configMaps+"/child").ok(t).value(t, "metadata", "ownerReferences").([]any)
			return len(left) == 1 && left[0].(map[string]any)["name"] == "two"
		})
		c.delete(t, configMaps+"/two").ok(t)
		c.gone(t, configMaps+"/child")
	}},
	{"the dependents of dependents go, too", func(t *testing.T, c *cluster) {
		configMaps := c.path("v1", "configmaps")
		top := c.post(t, configMaps, with(configMap("top", nil), "v1", "apiVersion")).created(t)
		middle := c.post(t, configMaps, own(t, with(configMap("middle", nil), "v1", "apiVersion"), top, true)).created(t)
		secret := manifest("{apiVersion: v1, kind: Secret, metadata: {name: bottom}}")
		c.post(t, c.path("v1", "secrets"), own(t, secret, middle, true)).created(t)
		c.delete(t, configMaps+"/top").ok(t)
		c.gone(t, configMaps+"/middle")
		c.gone(t, c.path("v1", "secrets", "bottom"))
	}},
	{"an owner that does not exist, in this namespace and with this uid, is no owner", func(t *testing.T, c *cluster) {
		configMaps := c.path("v1", "configmaps")
		old := c.post(t, configMaps, with(configMap("owner", nil), "v1", "apiVersion")).created(t)
		c.delete(t, configMaps+"/owner").ok(t)
		c.post(t, configMaps, configMap("owner", nil)).created(t)
		elsewhere := c.get(t, "/api/v1/namespaces/kube-system").ok(t)
		elsewhere.Body = []byte(strings.Replace(string(elsewhere.Body), `"Namespace"`, `"ConfigMap"`, 1))
		c.post(t, configMaps, own(t, configMap("of-an-older", nil), old, true)).created(t)
		c.post(t, configMaps, own(t, configMap("of-another", nil), elsewhere, true)).created(t)
		c.gone(t, configMaps+"/of-an-older")
		c.gone(t, configMaps+"/of-another")
		c.get(t, configMaps+"/owner").ok(t)
	}},
	{"custom resources own and are owned like what is built in", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		widgets, configMaps := c.path(groupVersion, "widgets"), c.path("v1", "configmaps")
		built := c.post(t, configMaps, with(configMap("top", nil), "v1", "apiVersion")).created(t)
		custom := c.post(t, widgets, own(t, widget(groupVersion, "middle"), built, true)).created(t)
		c.post(t, configMaps, own(t, finalized("child", "example.com/one"), custom, true)).created(t)
		// In the foreground the collector waits for those dependents that it knows of: it must have found the widgets.
		absent := answer{Body: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"none","uid":"none"}}`)}
		c.post(t, widgets, own(t, widget(groupVersion, "orphan"), absent, true)).created(t)
		c.gone(t, widgets+"/orphan")
		c.delete(t, configMaps+"/top?propagationPolicy=Foreground").ok(t)
		c.deletes(t, widgets+"/middle")
		c.deletes(t, configMaps+"/child")
		c.get(t, configMaps+"/top").ok(t)
		c.setFinalizers(t, configMaps+"/child").ok(t)
		c.gone(t, widgets+"/middle")
		c.gone(t, configMaps+"/top")
	}},
}

// ownerReferences are the promises about what an object says of its owners and finalizers.
var ownerReferences = []promise{
	{"an owner is named completely, once, and controls alone", func(t *testing.T, c *cluster) {
		post := func(references string) answer {
			return c.post(t, c.path("v1", "configmaps"), manifest("{metadata: {name: a, ownerReferences: [%s]}}", references))
		}
		post("{apiVersion: v1, kind: ConfigMap}").invalid(t, "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
			"metadata.ownerReferences.uid: Invalid value: \"\": must not be empty")
		one := "{apiVersion: v1, kind: ConfigMap, name: one, uid: one, controller: true}"
		post(one+", "+strings.ReplaceAll(one, "one", "two")).invalid(t, "Only one reference can have Controller set to true. "+
			`Found "true" in references for ConfigMap/one and ConfigMap/two`)
		self := c.get(t, c.global("v1", "namespaces", c.namespace)).text(t, "metadata", "uid")
		owner := "{apiVersion: v1, kind: Namespace, name: " + c.namespace + ", uid: " + self + "}"
		a := post(owner + ", " + owner).created(t)
		if owners := a.value(t, "metadata", "ownerReferences").([]any); len(owners) != 1 {
			t.Errorf("the owners are %v", owners)
		}
		equal(t, warnings(t, a), []string{".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, " +
			"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + self})
	}},
	{"the name of a finalizer has a domain, and those of the two policies exclude each other", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), finalized("a", "", "unqualified", "a b/c")).invalid(t,
			"metadata.finalizers[0]: Invalid value: \"\": name is neither a standard finalizer name nor is it fully qualified",
			"metadata.finalizers[1]: Invalid value: \"unqualified\": name is neither a standard finalizer name nor is it fully qualified",
			"metadata.finalizers: Invalid value: \"a b/c\"")
		c.post(t, c.path("v1", "configmaps"), finalized("a", "foregroundDeletion", "orphan")).invalid(t,
			"finalizer orphan and foregroundDeletion cannot be both set")
	}},
}

// defaultPolicies is what happens to dependents when a delete does not say.
var defaultPolicies = []promise{
	{"a delete that must wait for finalizers is 202 with orphanDependents=false, and else 200", func(t *testing.T, c *cluster) {
		for query, code := range map[string]int{"orphanDependents=false": http.StatusAccepted, "propagationPolicy=Background": http.StatusOK} {
			c.post(t, c.path("v1", "configmaps"), finalized("a", "example.com/one")).created(t)
			c.delete(t, c.path("v1", "configmaps", "a")+"?"+query).want(t, code)
			c.setFinalizers(t, c.path("v1", "configmaps", "a")).ok(t)
		}
	}},
	{"by default the dependents of jobs, which warn, and replication controllers stay, and all others go", func(t *testing.T, c *cluster) {
		template := "template: {metadata: {labels: {app: a}}, spec: {restartPolicy: %s, containers: [{name: c, image: i}]}}"
		job := strings.Replace(template, "%s", "Never", 1)
		for _, kind := range []struct {
			groupVersion, resource, kind, spec string
			orphan                             bool
		}{
			{"batch/v1", "jobs", "Job", job, true},
			{"batch/v1", "cronjobs", "CronJob", "schedule: '@daily', jobTemplate: {spec: {" + job + "}}", false},
			{"v1", "replicationcontrollers", "ReplicationController", "replicas: 0, " + strings.Replace(template,
				"%s", "Always", 1), true},
			{"apps/v1", "replicasets", "ReplicaSet", "selector: {matchLabels: {app: a}}, " + strings.Replace(template,
				"%s", "Always", 1), false},
		} {
			path := c.path(kind.groupVersion, kind.resource)
			owner := manifest("{apiVersion: %s, kind: %s, metadata: {name: owner}, spec: {%s}}", kind.groupVersion, kind.kind, kind.spec)
			created := c.post(t, path, owner).created(t)
			child := c.path("v1", "configmaps", kind.resource)
			c.post(t, c.path("v1", "configmaps"), own(t, configMap(kind.resource, nil), created, true)).created(t)
			a := c.delete(t, path+"/owner").ok(t)
			warning := "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them" +
				" or set propagationPolicy=Orphan to suppress this warning"
			if warned := strings.Contains(a.Header.Get("Warning"), warning); warned != (kind.kind == "Job") {
				t.Errorf("%s: the warnings are %q", kind.kind, a.Header.Values("Warning"))
			}
			c.gone(t, path+"/owner")
			if kind.orphan {
				c.orphaned(t, child)
			} else {
				c.gone(t, child)
			}
		}
	}},
}
