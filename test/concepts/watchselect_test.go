package concepts

import (
	"net/http"
	"testing"
)

// Watches with selectors.

var watchSelections = []promise{
	{"an object that begins to match a label selector is ADDED, and DELETED when it ends to, as it was before", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		s := c.watch(t, path+"?watch=1&labelSelector=l=in&resourceVersion="+c.get(t, path).version(t))
		label := func(value, data string) answer {
			return c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"l":`+value+`}},"data":{"k":"`+data+`"}}`).
				want(t, http.StatusOK)
		}
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		in := label(`"in"`, "1")
		equal(t, s.seen(t, "ADDED a")[0].Object, in.object(t))
		in = label(`"in"`, "2")
		equal(t, s.seen(t, "MODIFIED a")[0].Object, in.object(t))
		for _, out := range []string{`"out"`, "null"} {
			left := label(out, "3")
			want := in.object(t) // the state that the client knows, with the resourceVersion to go on from
			want["metadata"].(map[string]any)["resourceVersion"] = left.version(t)
			equal(t, s.seen(t, "DELETED a")[0].Object, want)
			label(out, "4")
			in = label(`"in"`, "5")
			equal(t, s.seen(t, "ADDED a")[0].Object, in.object(t))
		}
		label(`"out"`, "6")
		s.seen(t, "DELETED a")
		c.delete(t, path+"/a").want(t, http.StatusOK)
		c.post(t, path, with(configMap("b", nil), "in", "metadata", "labels", "l")).want(t, http.StatusCreated)
		s.seen(t, "ADDED b")
	}},
	{"an object that begins to match a field selector is ADDED, and DELETED when it ends to", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		path := c.path("v1", "pods")
		c.post(t, path, pod("a")).want(t, http.StatusCreated)
		s := c.watch(t, path+"?watch=1&fieldSelector=status.phase=Running,spec.nodeName=node&resourceVersion="+c.get(t,
			path).version(t))
		phase := func(phase string) {
			c.patch(t, mergePatch, path+"/a/status", `{"status":{"phase":"`+phase+`"}}`).want(t, http.StatusOK)
		}
		phase("Running")
		s.seen(t, "ADDED a")
		phase("Succeeded")
		e := s.seen(t, "DELETED a")[0]
		equal(t, field(t, e.Object, "status", "phase"), any("Running"))
		if got, now := e.version(), c.get(t, path+"/a").version(t); got != now {
			t.Errorf("it was deleted at %s instead of %s", got, now)
		}
	}},
	{"selectors hold for changes of the past as for those to come", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		start := c.get(t, path).version(t)
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"l":"in"}}}`).want(t, http.StatusOK)
		c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"l":"out"}}}`).want(t, http.StatusOK)
		for selector, want := range map[string][]string{
			"l=in": {"ADDED a", "DELETED a"}, "l": {"ADDED a", "MODIFIED a"}, "l=out": {"ADDED a"}, "!l": {"DELETED a"}, "l+notin+(in)": {"DELETED a", "ADDED a"},
		} {
			s := c.watch(t, path+"?watch=1&timeoutSeconds=3&fieldSelector=metadata.name=a&labelSelector="+selector+"&resourceVersion="+start)
			if selector == "!l" || selector == "l+notin+(in)" {
				s.seen(t, "ADDED a")
			}
			s.seen(t, want...)
			s.end(t)
		}
	}},
	{"what exists is selected, too, where a watch begins with it", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		c.post(t, path, with(configMap("b", nil), "in", "metadata", "labels", "l")).want(t, http.StatusCreated)
		s := c.watch(t, path+"?watch=1&labelSelector=l=in")
		s.seen(t, "ADDED b")
		c.patch(t, mergePatch, path+"/b", `{"metadata":{"labels":null}}`).want(t, http.StatusOK)
		s.seen(t, "DELETED b")
	}},
	{"selectors that can't be are refused", func(t *testing.T, c *cluster) {
		for _, query := range []string{"labelSelector=a==b==c", "labelSelector=,,", "fieldSelector=spec.colour=red", "fieldSelector=metadata.name"} {
			c.get(t, c.path("v1", "configmaps")+"?watch=1&timeoutSeconds=1&"+query).
				refused(t, http.StatusBadRequest, "BadRequest")
		}
	}},
}
