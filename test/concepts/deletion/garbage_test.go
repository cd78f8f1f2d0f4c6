package deletion

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// own returns the object with an additional owner, the object in the response.
func own(t testing.TB, object map[string]any, owner kit.Answer, block bool) map[string]any {
	t.Helper()
	references, _ := object["metadata"].(map[string]any)["ownerReferences"].([]any)
	return kit.With(object, append(references, map[string]any{
		"apiVersion": owner.Text(t, "apiVersion"), "kind": owner.Text(t, "kind"),
		"name": owner.Text(t, "metadata", "name"), "uid": owner.Text(t, "metadata", "uid"), "blockOwnerDeletion": block,
	}), "metadata", "ownerReferences")
}

// family creates the ConfigMap owner and its dependents child, which blocks the owner's deletion in the foreground, and loose,
// which does not. Both have a finalizer, so that they exist until the test removes it.
func family(t *testing.T, c *kit.Cluster) (owner kit.Answer) {
	t.Helper()
	configMaps := c.Path("v1", "configmaps")
	// The collector's first list comes in any order: dependents behind an owner that is being deleted already would wait for its end.
	collectorKnows(t, c, configMaps, kit.ConfigMap("orphan", nil))
	owner = c.Post(t, configMaps, kit.With(kit.ConfigMap("owner", nil), "v1", "apiVersion")).Created(t)
	c.Post(t, configMaps, own(t, kit.WithFinalizers("child", "example.com/one"), owner, true)).Created(t)
	c.Post(t, configMaps, own(t, kit.WithFinalizers("loose", "example.com/one"), owner, false)).Created(t)
	return owner
}

// collectorKnows waits until the collector knows the objects of a resource that exist: it has deleted a new one, whose owner is
// missing.
func collectorKnows(t *testing.T, c *kit.Cluster, path string, object map[string]any) {
	t.Helper()
	absent := kit.Answer{Body: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"none","uid":"none"}}`)}
	name := c.Post(t, path, own(t, object, absent, true)).Created(t).Text(t, "metadata", "name")
	c.WaitGone(t, path+"/"+name)
}

// deletes waits until an object is marked as being deleted.
func deletes(t *testing.T, c *kit.Cluster, path string) {
	t.Helper()
	harness.Eventually(t, path+" is being deleted", func() bool {
		return c.Get(t, path).OK(t).Value(t, "metadata", "deletionTimestamp") != nil
	})
}

// orphaned waits until an object that exists has no owners.
func orphaned(t *testing.T, c *kit.Cluster, path string) {
	t.Helper()
	harness.Eventually(t, path+" has no owners", func() bool {
		a := c.Get(t, path).OK(t)
		return a.Value(t, "metadata", "ownerReferences") == nil && a.Value(t, "metadata", "deletionTimestamp") == nil
	})
}

var cascades = []kit.Promise{
	{Statement: "in the background, an owner is removed at once and its dependents after it", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, query := range []string{"", "?propagationPolicy=Background", "?orphanDependents=false"} {
			family(t, c)
			c.Delete(t, c.Path("v1", "configmaps", "owner")+query).OK(t)
			c.Get(t, c.Path("v1", "configmaps", "owner")).NotFound(t)
			for _, name := range []string{"child", "loose"} {
				path := c.Path("v1", "configmaps", name)
				deletes(t, c, path)
				c.SetFinalizers(t, path).OK(t)
				c.WaitGone(t, path)
			}
		}
	}},
	{Statement: "in the foreground, an owner exists, being deleted, until its blocking dependents are gone", Proof: func(t *testing.T, c *kit.Cluster) {
		family(t, c)
		owner := c.Path("v1", "configmaps", "owner")
		a := c.Delete(t, owner+"?propagationPolicy=Foreground").OK(t)
		kit.Equal(t, a.Value(t, "metadata", "finalizers"), []any{"foregroundDeletion"})
		if a.Value(t, "metadata", "deletionTimestamp") == nil {
			t.Errorf("it is not being deleted: %s", a.Body)
		}
		deletes(t, c, c.Path("v1", "configmaps", "child"))
		deletes(t, c, c.Path("v1", "configmaps", "loose"))
		c.Get(t, owner).OK(t)
		c.SetFinalizers(t, c.Path("v1", "configmaps", "child")).OK(t)
		c.WaitGone(t, owner)
		c.Get(t, c.Path("v1", "configmaps", "loose")).OK(t)
	}},
	{Statement: "deleting an owner with the policy Orphan removes it, and its dependents stay", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, query := range []string{"propagationPolicy=Orphan", "orphanDependents=true"} {
			family(t, c)
			a := c.Delete(t, c.Path("v1", "configmaps", "owner")+"?"+query).OK(t)
			kit.Equal(t, a.Value(t, "metadata", "finalizers"), []any{"orphan"})
			c.WaitGone(t, c.Path("v1", "configmaps", "owner"))
			for _, name := range []string{"child", "loose"} {
				orphaned(t, c, c.Path("v1", "configmaps", name))
				c.SetFinalizers(t, c.Path("v1", "configmaps", name)).OK(t)
				c.Delete(t, c.Path("v1", "configmaps", name)).OK(t)
			}
		}
	}},
	{Statement: "a later delete may change the policy of one in progress", Proof: func(t *testing.T, c *kit.Cluster) {
		family(t, c)
		owner := c.Path("v1", "configmaps", "owner")
		c.Delete(t, owner+"?propagationPolicy=Foreground").OK(t)
		a := c.Delete(t, owner+"?propagationPolicy=Background").OK(t)
		kit.Equal(t, a.Text(t, "kind"), "Status")
		c.Get(t, owner).NotFound(t)
	}},
	{Statement: "a dependent of several owners is deleted with the last of them", Proof: func(t *testing.T, c *kit.Cluster) {
		configMaps := c.Path("v1", "configmaps")
		one := c.Post(t, configMaps, kit.With(kit.ConfigMap("one", nil), "v1", "apiVersion")).Created(t)
		two := c.Post(t, configMaps, kit.With(kit.ConfigMap("two", nil), "v1", "apiVersion")).Created(t)
		c.Post(t, configMaps, own(t, own(t, kit.ConfigMap("child", nil), one, true), two, true)).Created(t)
		c.Delete(t, configMaps+"/one").OK(t)
		harness.Eventually(t, "the child has one owner", func() bool {
			left, _ := c.Get(t, configMaps+"/child").OK(t).Value(t, "metadata", "ownerReferences").([]any)
			return len(left) == 1 && left[0].(map[string]any)["name"] == "two"
		})
		c.Delete(t, configMaps+"/two").OK(t)
		c.WaitGone(t, configMaps+"/child")
	}},
	{Statement: "dependents of dependents are deleted, too", Proof: func(t *testing.T, c *kit.Cluster) {
		configMaps := c.Path("v1", "configmaps")
		top := c.Post(t, configMaps, kit.With(kit.ConfigMap("top", nil), "v1", "apiVersion")).Created(t)
		middle := c.Post(t, configMaps, own(t, kit.With(kit.ConfigMap("middle", nil), "v1", "apiVersion"), top, true)).Created(t)
		secret := kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: bottom}}")
		c.Post(t, c.Path("v1", "secrets"), own(t, secret, middle, true)).Created(t)
		c.Delete(t, configMaps+"/top").OK(t)
		c.WaitGone(t, configMaps+"/middle")
		c.WaitGone(t, c.Path("v1", "secrets", "bottom"))
	}},
	{Statement: "an owner that does not exist in this namespace with this uid does not count", Proof: func(t *testing.T, c *kit.Cluster) {
		configMaps := c.Path("v1", "configmaps")
		old := c.Post(t, configMaps, kit.With(kit.ConfigMap("owner", nil), "v1", "apiVersion")).Created(t)
		c.Delete(t, configMaps+"/owner").OK(t)
		c.Post(t, configMaps, kit.ConfigMap("owner", nil)).Created(t)
		elsewhere := c.Get(t, "/api/v1/namespaces/kube-system").OK(t)
		elsewhere.Body = []byte(strings.Replace(string(elsewhere.Body), `"Namespace"`, `"ConfigMap"`, 1))
		c.Post(t, configMaps, own(t, kit.ConfigMap("of-an-older", nil), old, true)).Created(t)
		c.Post(t, configMaps, own(t, kit.ConfigMap("of-another", nil), elsewhere, true)).Created(t)
		c.WaitGone(t, configMaps+"/of-an-older")
		c.WaitGone(t, configMaps+"/of-another")
		c.Get(t, configMaps+"/owner").OK(t)
	}},
	{Statement: "custom resources can be owners and dependents like built-in ones", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		widgets, configMaps := c.Path(groupVersion, "widgets"), c.Path("v1", "configmaps")
		built := c.Post(t, configMaps, kit.With(kit.ConfigMap("top", nil), "v1", "apiVersion")).Created(t)
		custom := c.Post(t, widgets, own(t, kit.Widget(groupVersion, "middle"), built, true)).Created(t)
		c.Post(t, configMaps, own(t, kit.WithFinalizers("child", "example.com/one"), custom, true)).Created(t)
		// In the foreground, the collector waits for the dependents that it knows.
		collectorKnows(t, c, widgets, kit.Widget(groupVersion, "orphan"))
		collectorKnows(t, c, configMaps, kit.ConfigMap("orphan", nil))
		c.Delete(t, configMaps+"/top?propagationPolicy=Foreground").OK(t)
		deletes(t, c, widgets+"/middle")
		deletes(t, c, configMaps+"/child")
		c.Get(t, configMaps+"/top").OK(t)
		c.SetFinalizers(t, configMaps+"/child").OK(t)
		c.WaitGone(t, widgets+"/middle")
		c.WaitGone(t, configMaps+"/top")
	}},
}

// ownerReferences are the promises about an object's owner references and finalizers.
var ownerReferences = []kit.Promise{
	{Statement: "owner references must be complete and unique, with at most one controller", Proof: func(t *testing.T, c *kit.Cluster) {
		post := func(references string) kit.Answer {
			return c.Post(t, c.Path("v1", "configmaps"), kit.Manifest("{metadata: {name: a, ownerReferences: [%s]}}", references))
		}
		post("{apiVersion: v1, kind: ConfigMap}").Invalid(t, "metadata.ownerReferences[0].name: Required value: must not be empty",
			"metadata.ownerReferences[0].uid: Required value: must not be empty")
		one := "{apiVersion: v1, kind: ConfigMap, name: one, uid: one, controller: true}"
		post(one+", "+strings.ReplaceAll(one, "one", "two")).Invalid(t, "Only one reference can have Controller set to true. "+
			`Found "true" in references for ConfigMap/one and ConfigMap/two`)
		self := c.Get(t, c.ClusterPath("v1", "namespaces", c.Namespace)).Text(t, "metadata", "uid")
		owner := "{apiVersion: v1, kind: Namespace, name: " + c.Namespace + ", uid: " + self + "}"
		a := post(owner + ", " + owner).Created(t)
		if owners := a.Value(t, "metadata", "ownerReferences").([]any); len(owners) != 1 {
			t.Errorf("the owners are %v", owners)
		}
		kit.Equal(t, kit.Warnings(t, a), []string{".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, " +
			"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + self})
	}},
	{Statement: "finalizers need a domain, and those of the two policies exclude each other", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("a", "", "unqualified", "a b/c")).Invalid(t,
			"metadata.finalizers[0]: Invalid value: \"\": name is neither a standard finalizer name nor is it fully qualified",
			"metadata.finalizers[1]: Invalid value: \"unqualified\": name is neither a standard finalizer name nor is it fully qualified",
			"metadata.finalizers: Invalid value: \"a b/c\"")
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("a", "foregroundDeletion", "orphan")).Invalid(t,
			"finalizer orphan and foregroundDeletion cannot be both set")
	}},
}

// defaultPolicies are the policies for dependents if a delete has none.
var defaultPolicies = []kit.Promise{
	{Statement: "a delete that waits for finalizers returns 202 with orphanDependents=false, and otherwise 200", Proof: func(t *testing.T, c *kit.Cluster) {
		for query, code := range map[string]int{"orphanDependents=false": http.StatusAccepted, "propagationPolicy=Background": http.StatusOK} {
			c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("a", "example.com/one")).Created(t)
			c.Delete(t, c.Path("v1", "configmaps", "a")+"?"+query).Want(t, code)
			c.SetFinalizers(t, c.Path("v1", "configmaps", "a")).OK(t)
		}
	}},
	{Statement: "by default, dependents of jobs, with a warning, and of replication controllers stay; all others are deleted", Proof: func(t *testing.T, c *kit.Cluster) {
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
			path := c.Path(kind.groupVersion, kind.resource)
			owner := kit.Manifest("{apiVersion: %s, kind: %s, metadata: {name: owner}, spec: {%s}}", kind.groupVersion, kind.kind, kind.spec)
			created := c.Post(t, path, owner).Created(t)
			child := c.Path("v1", "configmaps", kind.resource)
			c.Post(t, c.Path("v1", "configmaps"), own(t, kit.ConfigMap(kind.resource, nil), created, true)).Created(t)
			if kind.orphan { // else it would be deleted
				collectorKnows(t, c, c.Path("v1", "configmaps"), kit.ConfigMap("orphan", nil))
			}
			a := c.Delete(t, path+"/owner").OK(t)
			warning := "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them" +
				" or set propagationPolicy=Orphan to suppress this warning"
			if warned := strings.Contains(a.Header.Get("Warning"), warning); warned != (kind.kind == "Job") {
				t.Errorf("%s: the warnings are %q", kind.kind, a.Header.Values("Warning"))
			}
			c.WaitGone(t, path+"/owner")
			if kind.orphan {
				orphaned(t, c, child)
			} else {
				c.WaitGone(t, child)
			}
		}
	}},
}
