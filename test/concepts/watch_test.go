package concepts

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Sections "Efficient detection of changes" and "Semantics for watch". One server for all subjects, which have a file each.
func TestWatch(t *testing.T) {
	prove(t, nil, slices.Concat(
		watchBeginnings, watchEvents, watchSelections, watchPaths, watchBookmarks, streamingLists, watchForms,
		watchTransports, watchManyWriters,
		watchesOfCustomResources, watchAccess,
	)...)
}

// seen fails the test unless the next events are these, as "TYPE name", and returns them.
func (s *stream) seen(t testing.TB, want ...string) []event {
	t.Helper()
	var events []event
	for _, want := range want {
		e := s.next(t)
		if got := e.Type + " " + e.name(); got != want {
			t.Fatalf("%s: the event is %s instead of %s: %v", s.request, got, want, e.Object)
		}
		events = append(events, e)
	}
	return events
}

// revisionOf is the resourceVersion of an event's object as a number. (Only for tests: to clients it is opaque, as the
// documents have it, though they may compare two of one resource since Kubernetes 1.35.)
func revisionOf(t testing.TB, e event) int64 {
	t.Helper()
	version, err := strconv.ParseInt(e.version(), 10, 64)
	if err != nil {
		t.Fatalf("%v: %v", e, err)
	}
	return version
}

// notRoot leaves out the ConfigMap that a controller makes in every namespace.
const notRoot = "fieldSelector=metadata.name!=kube-root-ca.crt"

var watchBeginnings = []promise{
	{"a watch without resourceVersion begins with what exists, and goes on with what changes", func(t *testing.T, c *cluster) {
		for _, version := range []string{"", "&resourceVersion=", "&resourceVersion=0"} {
			path := c.path("v1", "configmaps")
			c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
			c.post(t, path, configMap("b", nil)).want(t, http.StatusCreated)
			// "0" allows for an old state; what has been read from a list is in it.
			c.get(t, path).want(t, http.StatusOK)
			s := c.watch(t, path+"?watch=1&"+notRoot+version)
			initial := []string{s.next(t).name(), s.next(t).name()}
			slices.Sort(initial)
			equal(t, initial, []string{"a", "b"})
			c.post(t, path, configMap("c", nil)).want(t, http.StatusCreated)
			s.seen(t, "ADDED c")
			for _, name := range []string{"a", "b", "c"} {
				c.delete(t, path+"/"+name).want(t, http.StatusOK)
				s.seen(t, "DELETED "+name)
			}
			s.stop()
		}
	}},
	{"a watch at a list's resourceVersion has every change after the list, and no other", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		list := c.get(t, path)
		c.post(t, path, configMap("b", nil)).want(t, http.StatusCreated)
		c.put(t, path+"/a", configMap("a", map[string]string{"k": "v"})).want(t, http.StatusOK)
		c.delete(t, path+"/b").want(t, http.StatusOK)
		s := c.watch(t, path+"?watch=true&"+notRoot+"&resourceVersion="+list.version(t))
		s.seen(t, "ADDED b", "MODIFIED a", "DELETED b")
		c.delete(t, path+"/a").want(t, http.StatusOK)
		s.seen(t, "DELETED a")
	}},
	{"a watch at an object's resourceVersion, or at an event's, goes on behind it", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		created := c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		c.put(t, path+"/a", configMap("a", map[string]string{"k": "1"})).want(t, http.StatusOK)
		c.put(t, path+"/a", configMap("a", map[string]string{"k": "2"})).want(t, http.StatusOK)
		first := c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+created.version(t)).
			seen(t, "MODIFIED a", "MODIFIED a")[0]
		equal(t, field(t, first.Object, "data", "k"), any("1"))
		again := c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+first.version()).seen(t, "MODIFIED a")[0]
		equal(t, field(t, again.Object, "data", "k"), any("2"))
	}},
	{"a watch at a revision that is to come is silent until then", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		now, err := strconv.Atoi(c.get(t, path).version(t))
		if err != nil {
			t.Fatal(err)
		}
		a := c.get(t, path+"?watch=1&timeoutSeconds=1&resourceVersion="+strconv.Itoa(now+1_000_000)).want(t, http.StatusOK)
		equal(t, len(a.Body), 0)
	}},
	{"a resourceVersion that is none is refused with 400", func(t *testing.T, c *cluster) {
		for _, version := range []string{"x", "-1", "1.5", "99999999999999999999"} {
			// kube-apiserver says 500, though it is the client's mistake.
			c.get(t, c.path("v1", "configmaps")+"?watch=1&timeoutSeconds=1&resourceVersion="+version).
				refused(t, http.StatusBadRequest, "BadRequest", "resourceVersion: Invalid value")
		}
	}},
	{"a watch ends after timeoutSeconds, without an error", func(t *testing.T, c *cluster) {
		s := c.watch(t, c.path("v1", "configmaps")+"?watch=1&timeoutSeconds=1&resourceVersion="+c.get(t,
			c.path("v1", "configmaps")).version(t)+"&fieldSelector=metadata.name=none")
		s.end(t)
		c.get(t, c.path("v1", "configmaps")+"?watch=1&timeoutSeconds=soon").refused(t, http.StatusBadRequest, "BadRequest")
	}},
}

var watchEvents = []promise{
	{"events carry the object as the write left it, with its resourceVersion", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		start := c.get(t, path).version(t)
		var written []map[string]any
		write := func(a answer) { written = append(written, a.want(t, http.StatusOK, http.StatusCreated).object(t)) }
		write(c.post(t, path, configMap("a", map[string]string{"k": "1"})))
		write(c.put(t, path+"/a", configMap("a", map[string]string{"k": "2"})))
		write(c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"l":"x"}}}`))
		write(c.patch(t, applyPatch, path+"/a?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"y"}}`))
		for i, e := range c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+start).
			seen(t, "ADDED a", "MODIFIED a", "MODIFIED a", "MODIFIED a") {
			equal(t, e.Object, written[i])
		}
	}},
	{"DELETED carries the object's last state, with the resourceVersion of the deletion", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		last := c.post(t, path, configMap("a", map[string]string{"k": "v"})).want(t, http.StatusCreated)
		c.delete(t, path+"/a").want(t, http.StatusOK)
		e := c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+last.version(t)).seen(t, "DELETED a")[0]
		list := c.get(t, path)
		want := last.object(t)
		if deleted, before, after := revisionOf(t, e), revisionOf(t, event{Object: want}),
			revisionOf(t, event{Object: list.object(t)}); deleted <= before || deleted > after {
			t.Errorf("the object of %d was deleted at %d, before %d", before, deleted, after)
		}
		want["metadata"].(map[string]any)["resourceVersion"] = e.version()
		equal(t, e.Object, want)
	}},
	{"what waits for finalizers is MODIFIED first, and DELETED when they are done", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		created := c.post(t, path, with(configMap("a", nil), []any{"example.com/f"}, "metadata", "finalizers")).
			want(t, http.StatusCreated)
		c.delete(t, path+"/a").want(t, http.StatusOK)
		s := c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+created.version(t))
		if e := s.seen(t, "MODIFIED a")[0]; field(t, e.Object, "metadata", "deletionTimestamp") == nil {
			t.Errorf("it is not marked: %v", e.Object)
		}
		c.patch(t, mergePatch, path+"/a", `{"metadata":{"finalizers":null}}`).want(t, http.StatusOK)
		s.seen(t, "DELETED a")
	}},
	{"an object made anew is DELETED and ADDED, with another uid", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		created := c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		c.delete(t, path+"/a").want(t, http.StatusOK)
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		events := c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+created.version(t)).seen(t, "DELETED a", "ADDED a")
		if field(t, events[0].Object, "metadata", "uid") == field(t, events[1].Object, "metadata", "uid") {
			t.Error("the uid is the same")
		}
	}},
	{"a write that changes nothing, or does not succeed, brings no event", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		created := c.post(t, path, configMap("a", map[string]string{"k": "v"})).want(t, http.StatusCreated)
		c.patch(t, mergePatch, path+"/a", `{"data":{"k":"v"}}`).want(t, http.StatusOK)
		c.post(t, path, configMap("a", nil)).want(t, http.StatusConflict)
		c.put(t, path+"/a", with(configMap("a", nil), "1", "metadata", "resourceVersion")).want(t, http.StatusConflict)
		c.patch(t, mergePatch, path+"/a?dryRun=All", `{"data":{"k":"w"}}`).want(t, http.StatusOK)
		c.delete(t, path+"/a?dryRun=All").want(t, http.StatusOK)
		c.post(t, path, configMap("b", nil)).want(t, http.StatusCreated)
		c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+created.version(t)).seen(t, "ADDED b")
	}},
	{"the deletion of a collection brings an event for each object", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.post(t, path, manifest("{apiVersion: v1, kind: Secret, metadata: {name: %s}}", name)).
				want(t, http.StatusCreated)
		}
		s := c.watch(t, path+"?watch=1&resourceVersion="+c.get(t, path).version(t))
		c.delete(t, path).want(t, http.StatusOK)
		var names []string
		for range 3 {
			e := s.next(t)
			names = append(names, e.Type+" "+e.name())
		}
		slices.Sort(names)
		equal(t, names, []string{"DELETED a", "DELETED b", "DELETED c"})
	}},
}

var watchPaths = []promise{
	{"a watch in a namespace has that namespace's changes, one without has all", func(t *testing.T, c *cluster) {
		other := c.namespace + "-other"
		c.post(t, c.global("v1", "namespaces"), manifest("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", other)).
			want(t, http.StatusCreated)
		start := c.get(t, c.path("v1", "configmaps")).version(t)
		mine := with(configMap("a", nil), c.namespace, "metadata", "labels", "promise")
		c.post(t, c.global("v1", "namespaces", other, "configmaps"), mine).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "configmaps"), mine).want(t, http.StatusCreated)
		query := "?watch=1&labelSelector=promise=" + c.namespace + "&resourceVersion=" + start
		all := c.watch(t, c.global("v1", "configmaps")+query).seen(t, "ADDED a", "ADDED a")
		equal(t, []any{field(t, all[0].Object, "metadata", "namespace"), field(t, all[1].Object, "metadata", "namespace")},
			[]any{other, c.namespace})
		one := c.watch(t, c.path("v1", "configmaps")+query).seen(t, "ADDED a")[0]
		equal(t, field(t, one.Object, "metadata", "namespace"), any(c.namespace))
	}},
	{"a watch of one object, by a selector of its name, has only its changes, and before it exists none", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		s := c.watch(t, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+c.get(t, path).version(t))
		c.post(t, path, configMap("b", nil)).want(t, http.StatusCreated)
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		c.post(t, path, configMap("aa", nil)).want(t, http.StatusCreated)
		c.delete(t, path+"/a").want(t, http.StatusOK)
		s.seen(t, "ADDED a", "DELETED a")
		node := c.watch(t, c.global("v1", "namespaces")+"?watch=1&fieldSelector=metadata.name="+c.namespace)
		node.seen(t, "ADDED "+c.namespace)
	}},
	{"the parameter watch on the path of one object does nothing", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
		equal(t, c.get(t, c.path("v1", "configmaps", "a")+"?watch=1").want(t, http.StatusOK).text(t, "kind"), "ConfigMap")
	}},
	{"the old paths with /watch/ still watch", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), with(configMap("a", nil), c.namespace, "metadata", "labels", "promise")).
			want(t, http.StatusCreated)
		for _, path := range []string{
			"/api/v1/watch/namespaces/" + c.namespace + "/configmaps/a", "/api/v1/watch/namespaces/" + c.namespace + "/configmaps?" + notRoot,
			"/api/v1/watch/configmaps?labelSelector=promise=" + c.namespace, "/api/v1/watch/namespaces/" + c.namespace + "/configmaps/a?watch=false",
		} {
			c.watch(t, path).seen(t, "ADDED a")
		}
		c.watch(t, "/api/v1/watch/namespaces/"+c.namespace).seen(t, "ADDED "+c.namespace)
		c.watch(t, "/apis/rbac.authorization.k8s.io/v1/watch/clusterroles/admin").seen(t, "ADDED admin")
		c.watch(t, "/api/v1/watch/namespaces?fieldSelector=metadata.name="+c.namespace).seen(t, "ADDED "+c.namespace)
		c.get(t, "/api/v1/watch/namespaces/"+c.namespace+"/nothings").want(t, http.StatusNotFound)
		c.post(t, "/api/v1/watch/configmaps", configMap("b", nil)).want(t, http.StatusMethodNotAllowed)
		groupVersion := c.widgets(t, anySchema)
		c.post(t, c.path(groupVersion, "widgets"), widget(groupVersion, "a")).want(t, http.StatusCreated)
		for _, path := range []string{"/watch/namespaces/" + c.namespace + "/widgets/a", "/watch/namespaces/" + c.namespace + "/widgets", "/watch/widgets"} {
			c.watch(t, "/apis/"+groupVersion+path).seen(t, "ADDED a")
		}
	}},
	{"what can't be watched says so", func(t *testing.T, c *cluster) {
		c.get(t, "/api/v1/componentstatuses?watch=1").refused(t, http.StatusMethodNotAllowed, "MethodNotAllowed")
		c.get(t, "/apis/authentication.k8s.io/v1/tokenreviews?watch=1").want(t, http.StatusMethodNotAllowed)
	}},
}

var watchAccess = []promise{
	{"a watch needs the verb watch, whatever else is allowed", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
		for verb, rule := range map[string]string{"list": "verbs: [get, list]", "watch": "verbs: [watch]", "one": "verbs: [watch], resourceNames: [a]"} {
			c.post(t, c.path("rbac.authorization.k8s.io/v1", "roles"),
				manifest(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %s}, rules: [{apiGroups: [""], resources: [configmaps], %s}]}`, verb, rule)).
				want(t, http.StatusCreated)
			c.post(t, c.path("rbac.authorization.k8s.io/v1", "rolebindings"),
				manifest(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[1]s},
				roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[2]s-%[1]s}]}`, verb, c.namespace)).
				want(t, http.StatusCreated)
		}
		as := func(who, query string) answer {
			return c.send(t, http.MethodGet, c.path("v1", "configmaps")+"?"+query,
				header{"Impersonate-User", c.namespace + "-" + who}, nil)
		}
		eventually(t, "the roles hold", func() bool {
			return as("list", "").Code == http.StatusOK && as("watch", "watch=1&timeoutSeconds=1").Code == http.StatusOK &&
				as("one", "watch=1&timeoutSeconds=1&fieldSelector=metadata.name=a").Code == http.StatusOK
		})
		const message = `configmaps is forbidden: User "%s-%s" cannot %s resource "configmaps" in API group "" in the namespace "%s"`
		forbidden := func(a answer, who, verb string) {
			t.Helper()
			want := strings.NewReplacer("%s-%s", c.namespace+"-"+who, "cannot %s", "cannot "+verb, `"%s"`, `"`+c.namespace+`"`).Replace(message)
			a.refused(t, http.StatusForbidden, "Forbidden", want)
		}
		forbidden(as("list", "watch=1&timeoutSeconds=1"), "list", "watch")
		forbidden(as("watch", ""), "watch", "list")
		forbidden(as("one", "watch=1&timeoutSeconds=1"), "one", "watch")
		if events := as("one", "watch=1&timeoutSeconds=3&fieldSelector=metadata.name=a").events(t); len(events) != 1 ||
			events[0].name() != "a" {
			t.Errorf("who may watch one object sees %v", events)
		}
	}},
}
