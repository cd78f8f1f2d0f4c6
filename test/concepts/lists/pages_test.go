package lists

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

var pages = []kit.Promise{
	{Statement: "all pages of a list are from the first page's revision, whatever changes meanwhile", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		var want []string
		for i := range 9 {
			want = append(want, fmt.Sprintf("s%d", i))
			c.Post(t, path, kit.Secret(want[i])).Created(t)
		}
		first := c.Get(t, path+"?limit=2").OK(t)
		names, page := first.Names(t), first
		for i := 0; page.Text(t, "metadata", "continue") != ""; i++ {
			c.Delete(t, path+"/"+want[i]).OK(t)
			c.Delete(t, path+"/"+want[8-i]).OK(t)
			c.Patch(t, kit.MergePatch, path+"/s4", map[string]any{"metadata": map[string]any{"labels": map[string]any{"n": fmt.Sprint(i)}}}).OK(t)
			c.Post(t, path, kit.Secret(want[4]+fmt.Sprint(i))).Created(t)
			page = c.NextPage(t, path+"?limit=2", page)
			names = append(names, page.Names(t)...)
			kit.Equal(t, page.ResourceVersion(t), first.ResourceVersion(t))
			for _, item := range page.Value(t, "items").([]any) {
				if metadata := item.(map[string]any)["metadata"].(map[string]any); metadata["labels"] != nil {
					t.Errorf("%v has labels that it did not have then", metadata["name"])
				}
			}
		}
		kit.Equal(t, names, want)
	}},
	{Statement: "remainingItemCount is exact, and missing on the last page", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		for i := range 7 {
			c.Post(t, path, kit.Secret(fmt.Sprintf("s%d", i))).Created(t)
		}
		for limit, want := range map[int][]any{1: {6.0, 5.0, 4.0, 3.0, 2.0, 1.0, nil}, 3: {4.0, 1.0, nil}, 6: {1.0, nil}, 7: {nil}, 8: {nil}} {
			query := fmt.Sprintf("%s?limit=%d", path, limit)
			page := c.Get(t, query).OK(t)
			remaining := []any{page.Value(t, "metadata", "remainingItemCount")}
			for page.Text(t, "metadata", "continue") != "" {
				page = c.NextPage(t, query, page)
				remaining = append(remaining, page.Value(t, "metadata", "remainingItemCount"))
			}
			kit.Equal(t, remaining, want)
		}
		// At an exact revision, it counts the objects at that time.
		then := c.Get(t, path).ResourceVersion(t)
		c.Delete(t, path+"/s6").OK(t)
		old := c.Get(t, path+"?limit=2&resourceVersion="+then).OK(t)
		kit.Equal(t, old.Value(t, "metadata", "remainingItemCount"), any(5.0))
	}},
	{Statement: "a limit may be any number: one that no list reaches has no effect, with any selector", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "secrets"):    kit.Secret("a"),
			c.Path(version, "widgets"): kit.Widget(version, "a"),
		} {
			c.Post(t, path, object).Created(t)
			for _, limit := range []string{"9223372036854775807", "9223372036854775806", "4294967296", "2147483648", "2147483647", "501", "500"} {
				for selector, want := range map[string][]string{"": {"a"}, "&labelSelector=no%3Dbody": {}, "&labelSelector=!no": {"a"}, "&fieldSelector=metadata.name%3Db": {}} {
					list := c.Get(t, path+"?limit="+limit+selector).OK(t)
					kit.Equal(t, list.Names(t), want)
					kit.Equal(t, list.Text(t, "metadata", "continue"), "")
				}
			}
		}
	}},
	{Statement: "with a selector, pages are full, and there is no remainingItemCount", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		var want []string
		for i := range 12 {
			s := kit.Secret(fmt.Sprintf("s%02d", i))
			if i%4 == 3 {
				s = kit.With(s, "yes", "metadata", "labels", "chosen")
				want = append(want, fmt.Sprintf("s%02d", i))
			}
			c.Post(t, path, s).Created(t)
		}
		query := path + "?limit=2&labelSelector=chosen"
		first := c.Get(t, query).OK(t)
		second := c.NextPage(t, query, first)
		kit.Equal(t, first.Names(t), want[:2])
		kit.Equal(t, second.Names(t), want[2:])
		kit.Equal(t, []any{first.Value(t, "metadata", "remainingItemCount"), second.Value(t, "metadata", "remainingItemCount"), second.Text(t, "metadata", "continue")}, []any{nil, nil, ""})
		byField := c.Get(t, path+"?limit=2&fieldSelector=metadata.name!%3Ds00").OK(t)
		kit.Equal(t, byField.Names(t), []string{"s01", "s02"})
		kit.Equal(t, byField.Value(t, "metadata", "remainingItemCount"), nil)
	}},
	{Statement: "a page may have a different limit than the previous one, or none", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		for i := range 6 {
			c.Post(t, path, kit.Secret(fmt.Sprintf("s%d", i))).Created(t)
		}
		first := c.Get(t, path+"?limit=1").OK(t)
		second := c.NextPage(t, path+"?limit=3", first)
		kit.Equal(t, second.Names(t), []string{"s1", "s2", "s3"})
		kit.Equal(t, c.NextPage(t, path+"?", second).Names(t), []string{"s4", "s5"})
		kit.Equal(t, c.NextPage(t, path+"?", first).Names(t), []string{"s1", "s2", "s3", "s4", "s5"})
		kit.Equal(t, c.NextPage(t, path+"?limit=3", first).Names(t), second.Names(t)) // again
	}},
	{Statement: "pages of all namespaces continue from one namespace to the next", Proof: func(t *testing.T, c *kit.Cluster) {
		var want []string
		for _, namespace := range []string{c.Namespace, c.Namespace + "-b", c.Namespace + "-c"} {
			if namespace != c.Namespace {
				c.Post(t, c.ClusterPath("v1", "namespaces"), kit.Namespace(namespace)).Created(t)
			}
			for _, name := range []string{"x", "y"} {
				c.Post(t, c.ClusterPath("v1", "namespaces", namespace, "secrets"), kit.With(kit.Secret(name), c.Namespace, "metadata", "labels", "of")).Created(t)
				want = append(want, name)
			}
		}
		query := c.ClusterPath("v1", "secrets") + "?limit=1&labelSelector=of%3D" + c.Namespace
		page := c.Get(t, query).OK(t)
		names := page.Names(t)
		for page.Text(t, "metadata", "continue") != "" {
			page = c.NextPage(t, query, page)
			names = append(names, page.Names(t)...)
		}
		kit.Equal(t, names, want)
	}},
	{Statement: "each page has its own selectors: a token does not contain them", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, path, kit.With(kit.Secret(name), name, "metadata", "labels", "is")).Created(t)
		}
		first := c.Get(t, path+"?limit=1&labelSelector=is").OK(t)
		kit.Equal(t, c.NextPage(t, path+"?labelSelector=is%3Dc", first).Names(t), []string{"c"})
	}},
	{Statement: "a token contains a revision and a position in the order of names, which work for any collection", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, c.Path("v1", "secrets"), kit.Secret(name)).Created(t)
			c.Post(t, c.Path("v1", "services"), kit.With(kit.Service(name), "None", "spec", "clusterIP")).Created(t)
		}
		page := c.Get(t, c.Path("v1", "secrets")+"?limit=1").OK(t)
		rest := c.NextPage(t, c.Path("v1", "services")+"?", page)
		kit.Equal(t, rest.Names(t), []string{"b", "c"})
		elsewhere := c.NextPage(t, c.ClusterPath("v1", "namespaces", c.Namespace+"-none", "secrets")+"?", page)
		kit.Equal(t, elsewhere.Names(t), []string{})
		if rest.ResourceVersion(t) != page.ResourceVersion(t) || elsewhere.ResourceVersion(t) != page.ResourceVersion(t) {
			t.Errorf("the revision is %s, then %s and %s", page.ResourceVersion(t), rest.ResourceVersion(t), elsewhere.ResourceVersion(t))
		}
	}},
	{Statement: "a token of all namespaces is a position in one namespace's order of names too, and the other way round", Proof: func(t *testing.T, c *kit.Cluster) {
		names := []string{"a", "m", "zz"}
		for _, name := range names {
			c.Post(t, c.Path("v1", "secrets"), kit.With(kit.Secret(name), c.Namespace, "metadata", "labels", "of")).Created(t)
		}
		for start, want := range map[string][]string{
			c.Namespace + "/zz\x00": {"m", "zz"}, "a/x\x00": {"m", "zz"}, "mm/x\x00": {"zz"}, "zzz/x\x00": {}, "0/x\x00": names,
		} {
			kit.Equal(t, c.Get(t, c.Path("v1", "secrets")+"?limit=5&continue="+continueToken(-1, start)).OK(t).Names(t), want)
		}
		all := c.ClusterPath("v1", "secrets") + "?limit=5&labelSelector=of%3D" + c.Namespace + "&continue="
		for start, want := range map[string][]string{c.Namespace: names, c.Namespace + "\x00": names, "zzz\x00": {}, "0\x00": names} {
			kit.Equal(t, c.Get(t, all+continueToken(-1, start)).OK(t).Names(t), want)
		}
	}},
	{Statement: "a list of one object by name works with a limit", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, name := range []string{"a", "b"} {
			c.Post(t, c.Path("v1", "secrets"), kit.Secret(name)).Created(t)
		}
		list := c.Get(t, c.Path("v1", "secrets")+"?limit=1&fieldSelector=metadata.name%3Da").OK(t)
		kit.Equal(t, list.Names(t), []string{"a"})
		kit.Equal(t, list.Text(t, "metadata", "continue"), "")
	}},
	{Statement: "clients with built-in paging receive everything", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		var want []string
		for i := range 25 {
			want = append(want, fmt.Sprintf("s%02d", i))
			c.Post(t, path, kit.Secret(want[i])).Created(t)
		}
		output, ok := c.Kubectl(t, "", "get", "secrets", "-o", "name", "--chunk-size=10")
		for _, name := range want {
			if !ok || !slices.Contains(strings.Fields(output), "secret/"+name) {
				t.Fatalf("%s is missing in\n%s", name, output)
			}
		}
	}},
}
