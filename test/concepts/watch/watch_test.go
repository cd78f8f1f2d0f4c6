// Package watch tests sqube against the documentation of watches, bookmarks and streaming lists.
package watch

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Sections "Efficient detection of changes" and "Semantics for watch". One server for all subjects, each of which has its own
// file.
func TestWatch(t *testing.T) {
	kit.ProveOnEngines(t, nil, slices.Concat(
		watchBeginnings, watchEvents, watchSelections, watchPaths, watchBookmarks, streamingLists, watchForms,
		watchTransports, watchManyWriters,
		watchesOfCustomResources, watchAccess,
	)...)
}

// seen fails the test unless the next events are these, as "TYPE name", and returns them.
func seen(t testing.TB, s *kit.Stream, want ...string) []kit.Event {
	t.Helper()
	var events []kit.Event
	for _, want := range want {
		e := s.Next(t)
		if got := e.Type + " " + e.Name(); got != want {
			t.Fatalf("%s: the event is %s instead of %s: %v", s.Request, got, want, e.Object)
		}
		events = append(events, e)
	}
	return events
}

// revisionOf returns the resourceVersion of an event's object as a number. (Only for tests: to clients it is opaque, although
// since Kubernetes 1.35 they may compare two of one resource.)
func revisionOf(t testing.TB, e kit.Event) int64 {
	t.Helper()
	version, err := strconv.ParseInt(e.ResourceVersion(), 10, 64)
	if err != nil {
		t.Fatalf("%v: %v", e, err)
	}
	return version
}

// notRoot excludes the ConfigMap that a controller creates in every namespace.
const notRoot = "fieldSelector=metadata.name!=kube-root-ca.crt"

var watchBeginnings = []kit.Promise{
	{Statement: "a watch without resourceVersion begins with existing objects, and continues with changes", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, version := range []string{"", "&resourceVersion=", "&resourceVersion=0"} {
			path := c.Path("v1", "configmaps")
			c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
			c.Post(t, path, kit.ConfigMap("b", nil)).Created(t)
			// "0" allows an old state, which includes what a list has returned.
			c.Get(t, path).OK(t)
			s := c.Watch(t, path+"?watch=1&"+notRoot+version)
			initial := []string{s.Next(t).Name(), s.Next(t).Name()}
			slices.Sort(initial)
			kit.Equal(t, initial, []string{"a", "b"})
			c.Post(t, path, kit.ConfigMap("c", nil)).Created(t)
			seen(t, s, "ADDED c")
			for _, name := range []string{"a", "b", "c"} {
				c.Delete(t, path+"/"+name).OK(t)
				seen(t, s, "DELETED "+name)
			}
			s.Stop()
		}
	}},
	{Statement: "a watch at a list's resourceVersion receives exactly the changes after the list", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		list := c.Get(t, path)
		c.Post(t, path, kit.ConfigMap("b", nil)).Created(t)
		c.Put(t, path+"/a", kit.ConfigMap("a", map[string]string{"k": "v"})).OK(t)
		c.Delete(t, path+"/b").OK(t)
		s := c.Watch(t, path+"?watch=true&"+notRoot+"&resourceVersion="+list.ResourceVersion(t))
		seen(t, s, "ADDED b", "MODIFIED a", "DELETED b")
		c.Delete(t, path+"/a").OK(t)
		seen(t, s, "DELETED a")
	}},
	{Statement: "a watch at an object's or an event's resourceVersion continues after it", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		created := c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		c.Put(t, path+"/a", kit.ConfigMap("a", map[string]string{"k": "1"})).OK(t)
		c.Put(t, path+"/a", kit.ConfigMap("a", map[string]string{"k": "2"})).OK(t)
		first := seen(t, c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+created.ResourceVersion(t)), "MODIFIED a", "MODIFIED a")[0]
		kit.Equal(t, kit.FieldOf(t, first.Object, "data", "k"), any("1"))
		again := seen(t, c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+first.ResourceVersion()), "MODIFIED a")[0]
		kit.Equal(t, kit.FieldOf(t, again.Object, "data", "k"), any("2"))
	}},
	{Statement: "a watch at a future revision is silent until then", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		now := kit.Must(strconv.Atoi(c.Get(t, path).ResourceVersion(t)))(t)
		a := c.Get(t, path+"?watch=1&timeoutSeconds=1&resourceVersion="+strconv.Itoa(now+1_000_000)).OK(t)
		kit.Equal(t, len(a.Body), 0)
	}},
	{Statement: "a watch ends after timeoutSeconds, without an error", Proof: func(t *testing.T, c *kit.Cluster) {
		s := c.Watch(t, c.Path("v1", "configmaps")+"?watch=1&timeoutSeconds=1&resourceVersion="+c.Get(t,
			c.Path("v1", "configmaps")).ResourceVersion(t)+"&fieldSelector=metadata.name=none")
		s.End(t)
		c.Get(t, c.Path("v1", "configmaps")+"?watch=1&timeoutSeconds=soon").BadRequest(t)
	}},
}

var watchEvents = []kit.Promise{
	{Statement: "events have the object as written, with its resourceVersion", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		start := c.Get(t, path).ResourceVersion(t)
		var written []map[string]any
		write := func(a kit.Answer) { written = append(written, a.Want(t, http.StatusOK, http.StatusCreated).Object(t)) }
		write(c.Post(t, path, kit.ConfigMap("a", map[string]string{"k": "1"})))
		write(c.Put(t, path+"/a", kit.ConfigMap("a", map[string]string{"k": "2"})))
		write(c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"l":"x"}}}`))
		write(c.Patch(t, kit.ApplyPatch, path+"/a?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"y"}}`))
		for i, e := range seen(t, c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+start), "ADDED a", "MODIFIED a", "MODIFIED a", "MODIFIED a") {
			kit.Equal(t, e.Object, written[i])
		}
	}},
	{Statement: "DELETED has the object's last state, with the resourceVersion of the deletion", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		last := c.Post(t, path, kit.ConfigMap("a", map[string]string{"k": "v"})).Created(t)
		c.Delete(t, path+"/a").OK(t)
		e := seen(t, c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+last.ResourceVersion(t)), "DELETED a")[0]
		list := c.Get(t, path)
		want := last.Object(t)
		if deleted, before, after := revisionOf(t, e), revisionOf(t, kit.Event{Object: want}),
			revisionOf(t, kit.Event{Object: list.Object(t)}); deleted <= before || deleted > after {
			t.Errorf("the object at %d was deleted at %d, before %d", before, deleted, after)
		}
		want["metadata"].(map[string]any)["resourceVersion"] = e.ResourceVersion()
		kit.Equal(t, e.Object, want)
	}},
	{Statement: "a recreated object is DELETED and ADDED, with another uid", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		created := c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		c.Delete(t, path+"/a").OK(t)
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		events := seen(t, c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+created.ResourceVersion(t)), "DELETED a", "ADDED a")
		if kit.FieldOf(t, events[0].Object, "metadata", "uid") == kit.FieldOf(t, events[1].Object, "metadata", "uid") {
			t.Error("the uid is the same")
		}
	}},
	{Statement: "a write that fails or changes nothing causes no event", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		created := c.Post(t, path, kit.ConfigMap("a", map[string]string{"k": "v"})).Created(t)
		c.Patch(t, kit.MergePatch, path+"/a", `{"data":{"k":"v"}}`).OK(t)
		c.Post(t, path, kit.ConfigMap("a", nil)).Want(t, http.StatusConflict)
		c.Put(t, path+"/a", kit.With(kit.ConfigMap("a", nil), "1", "metadata", "resourceVersion")).Want(t, http.StatusConflict)
		c.Patch(t, kit.MergePatch, path+"/a?dryRun=All", `{"data":{"k":"w"}}`).OK(t)
		c.Delete(t, path+"/a?dryRun=All").OK(t)
		c.Post(t, path, kit.ConfigMap("b", nil)).Created(t)
		seen(t, c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+created.ResourceVersion(t)), "ADDED b")
	}},
	{Statement: "the deletion of a collection causes an event for each object", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, path, kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: %s}}", name)).Created(t)
		}
		s := c.Watch(t, path+"?watch=1&resourceVersion="+c.Get(t, path).ResourceVersion(t))
		c.Delete(t, path).OK(t)
		var names []string
		for range 3 {
			e := s.Next(t)
			names = append(names, e.Type+" "+e.Name())
		}
		slices.Sort(names)
		kit.Equal(t, names, []string{"DELETED a", "DELETED b", "DELETED c"})
	}},
}

var watchPaths = []kit.Promise{
	{Statement: "a watch in a namespace receives that namespace's changes, one without receives all", Proof: func(t *testing.T, c *kit.Cluster) {
		other := c.Namespace + "-other"
		c.Post(t, c.ClusterPath("v1", "namespaces"), kit.Manifest("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", other)).Created(t)
		start := c.Get(t, c.Path("v1", "configmaps")).ResourceVersion(t)
		mine := kit.With(kit.ConfigMap("a", nil), c.Namespace, "metadata", "labels", "promise")
		c.Post(t, c.ClusterPath("v1", "namespaces", other, "configmaps"), mine).Created(t)
		c.Post(t, c.Path("v1", "configmaps"), mine).Created(t)
		query := "?watch=1&labelSelector=promise=" + c.Namespace + "&resourceVersion=" + start
		all := seen(t, c.Watch(t, c.ClusterPath("v1", "configmaps")+query), "ADDED a", "ADDED a")
		kit.Equal(t, []any{kit.FieldOf(t, all[0].Object, "metadata", "namespace"), kit.FieldOf(t, all[1].Object, "metadata", "namespace")},
			[]any{other, c.Namespace})
		one := seen(t, c.Watch(t, c.Path("v1", "configmaps")+query), "ADDED a")[0]
		kit.Equal(t, kit.FieldOf(t, one.Object, "metadata", "namespace"), any(c.Namespace))
	}},
	{Statement: "a watch of one object, by a selector for its name, receives only its changes, and none before it exists", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		s := c.Watch(t, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+c.Get(t, path).ResourceVersion(t))
		c.Post(t, path, kit.ConfigMap("b", nil)).Created(t)
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		c.Post(t, path, kit.ConfigMap("aa", nil)).Created(t)
		c.Delete(t, path+"/a").OK(t)
		seen(t, s, "ADDED a", "DELETED a")
		node := c.Watch(t, c.ClusterPath("v1", "namespaces")+"?watch=1&fieldSelector=metadata.name="+c.Namespace)
		seen(t, node, "ADDED "+c.Namespace)
	}},
	{Statement: "the parameter watch on the path of one object has no effect", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		kit.Equal(t, c.Get(t, c.Path("v1", "configmaps", "a")+"?watch=1").OK(t).Text(t, "kind"), "ConfigMap")
	}},
	{Statement: "the old paths with /watch/ still watch", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap("a", nil), c.Namespace, "metadata", "labels", "promise")).Created(t)
		for _, path := range []string{
			"/api/v1/watch/namespaces/" + c.Namespace + "/configmaps/a", "/api/v1/watch/namespaces/" + c.Namespace + "/configmaps?" + notRoot,
			"/api/v1/watch/configmaps?labelSelector=promise=" + c.Namespace, "/api/v1/watch/namespaces/" + c.Namespace + "/configmaps/a?watch=false",
		} {
			seen(t, c.Watch(t, path), "ADDED a")
		}
		seen(t, c.Watch(t, "/api/v1/watch/namespaces/"+c.Namespace), "ADDED "+c.Namespace)
		seen(t, c.Watch(t, "/apis/rbac.authorization.k8s.io/v1/watch/clusterroles/admin"), "ADDED admin")
		seen(t, c.Watch(t, "/api/v1/watch/namespaces?fieldSelector=metadata.name="+c.Namespace), "ADDED "+c.Namespace)
		c.Get(t, "/api/v1/watch/namespaces/"+c.Namespace+"/nothings").Want(t, http.StatusNotFound)
		c.Post(t, "/api/v1/watch/configmaps", kit.ConfigMap("b", nil)).Want(t, http.StatusMethodNotAllowed)
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(groupVersion, "widgets"), kit.Widget(groupVersion, "a")).Created(t)
		for _, path := range []string{"/watch/namespaces/" + c.Namespace + "/widgets/a", "/watch/namespaces/" + c.Namespace + "/widgets", "/watch/widgets"} {
			seen(t, c.Watch(t, "/apis/"+groupVersion+path), "ADDED a")
		}
		c.Get(t, "/api/v1/watch/nodes/none?timeoutSeconds=1").OK(t)
	}},
	{Statement: "resources that can't be watched return an error", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Get(t, "/api/v1/componentstatuses?watch=1").Refused(t, http.StatusMethodNotAllowed, "MethodNotAllowed")
		c.Get(t, "/apis/authentication.k8s.io/v1/tokenreviews?watch=1").Want(t, http.StatusMethodNotAllowed)
	}},
}

var watchAccess = []kit.Promise{
	{Statement: "a watch needs the verb watch, whatever else is allowed", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		for verb, rule := range map[string]string{"list": "verbs: [get, list]", "watch": "verbs: [watch]", "one": "verbs: [watch], resourceNames: [a]"} {
			c.Post(t, c.Path("rbac.authorization.k8s.io/v1", "roles"),
				kit.Manifest(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %s}, rules: [{apiGroups: [""], resources: [configmaps], %s}]}`, verb, rule)).
				Created(t)
			c.Post(t, c.Path("rbac.authorization.k8s.io/v1", "rolebindings"),
				kit.Manifest(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[1]s},
				roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[2]s-%[1]s}]}`, verb, c.Namespace)).
				Created(t)
		}
		as := func(who, query string) kit.Answer {
			return c.Send(t, http.MethodGet, c.Path("v1", "configmaps")+"?"+query,
				kit.Header{"Impersonate-User", c.Namespace + "-" + who}, nil)
		}
		harness.Eventually(t, "the roles are in effect", func() bool {
			return as("list", "").Code == http.StatusOK && as("watch", "watch=1&timeoutSeconds=1").Code == http.StatusOK &&
				as("one", "watch=1&timeoutSeconds=1&fieldSelector=metadata.name=a").Code == http.StatusOK
		})
		const message = `configmaps is forbidden: User "%s-%s" cannot %s resource "configmaps" in API group "" in the namespace "%s"`
		forbidden := func(a kit.Answer, who, verb string) {
			t.Helper()
			want := strings.NewReplacer("%s-%s", c.Namespace+"-"+who, "cannot %s", "cannot "+verb, `"%s"`, `"`+c.Namespace+`"`).Replace(message)
			a.Forbidden(t, want)
		}
		forbidden(as("list", "watch=1&timeoutSeconds=1"), "list", "watch")
		forbidden(as("watch", ""), "watch", "list")
		forbidden(as("one", "watch=1&timeoutSeconds=1"), "one", "watch")
		if events := c.WatchAs(t, 1, kit.Header{"Impersonate-User", c.Namespace + "-one"},
			c.Path("v1", "configmaps")+"?watch=1&fieldSelector=metadata.name=a").Events(t); len(events) != 1 || events[0].Name() != "a" {
			t.Errorf("a user who may watch one object receives %v", events)
		}
	}},
}
