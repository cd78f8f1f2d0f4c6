package watch

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// Watches with selectors.

var watchSelections = []kit.Promise{
	{Statement: "an object that begins to match a label selector is ADDED, and DELETED with its previous state when it no longer matches", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		s := c.Watch(t, path+"?watch=1&labelSelector=l=in&resourceVersion="+c.Get(t, path).ResourceVersion(t))
		label := func(value, data string) kit.Answer {
			return c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"l":`+value+`}},"data":{"k":"`+data+`"}}`).OK(t)
		}
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		in := label(`"in"`, "1")
		kit.Equal(t, seen(t, s, "ADDED a")[0].Object, in.Object(t))
		in = label(`"in"`, "2")
		kit.Equal(t, seen(t, s, "MODIFIED a")[0].Object, in.Object(t))
		for _, out := range []string{`"out"`, "null"} {
			left := label(out, "3")
			want := in.Object(t) // the state that the client has, with the resourceVersion to resume from
			want["metadata"].(map[string]any)["resourceVersion"] = left.ResourceVersion(t)
			kit.Equal(t, seen(t, s, "DELETED a")[0].Object, want)
			label(out, "4")
			in = label(`"in"`, "5")
			kit.Equal(t, seen(t, s, "ADDED a")[0].Object, in.Object(t))
		}
		label(`"out"`, "6")
		seen(t, s, "DELETED a")
		c.Delete(t, path+"/a").OK(t)
		c.Post(t, path, kit.With(kit.ConfigMap("b", nil), "in", "metadata", "labels", "l")).Created(t)
		seen(t, s, "ADDED b")
	}},
	{Statement: "an object that begins to match a field selector is ADDED, and DELETED when it no longer matches", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		path := c.Path("v1", "pods")
		c.Post(t, path, kit.Pod("a")).Created(t)
		s := c.Watch(t, path+"?watch=1&fieldSelector=status.phase=Running,spec.nodeName=node&resourceVersion="+c.Get(t,
			path).ResourceVersion(t))
		phase := func(phase string) {
			c.Patch(t, kit.MergePatch, path+"/a/status", `{"status":{"phase":"`+phase+`"}}`).OK(t)
		}
		phase("Running")
		seen(t, s, "ADDED a")
		phase("Succeeded")
		e := seen(t, s, "DELETED a")[0]
		kit.Equal(t, kit.FieldOf(t, e.Object, "status", "phase"), any("Running"))
		if got, now := e.ResourceVersion(), c.Get(t, path+"/a").ResourceVersion(t); got != now {
			t.Errorf("it was deleted at %s instead of %s", got, now)
		}
	}},
	{Statement: "selectors apply to past changes and to new ones", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		start := c.Get(t, path).ResourceVersion(t)
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"l":"in"}}}`).OK(t)
		c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"l":"out"}}}`).OK(t)
		for selector, want := range map[string][]string{
			"l=in": {"ADDED a", "DELETED a"}, "l": {"ADDED a", "MODIFIED a"}, "l=out": {"ADDED a"}, "!l": {"ADDED a", "DELETED a"},
			"l+notin+(in)": {"ADDED a", "DELETED a", "ADDED a"},
		} {
			var got []string
			for _, e := range c.WatchAs(t, len(want), nil, path+"?watch=1&fieldSelector=metadata.name=a&labelSelector="+selector+"&resourceVersion="+start).Events(t) {
				got = append(got, e.Type+" "+e.Name())
			}
			kit.Equal(t, got, want)
		}
	}},
	{Statement: "selectors apply to the initial state, too", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		c.Post(t, path, kit.With(kit.ConfigMap("b", nil), "in", "metadata", "labels", "l")).Created(t)
		s := c.Watch(t, path+"?watch=1&labelSelector=l=in")
		seen(t, s, "ADDED b")
		c.Patch(t, kit.MergePatch, path+"/b", `{"metadata":{"labels":null}}`).OK(t)
		seen(t, s, "DELETED b")
	}},
}
