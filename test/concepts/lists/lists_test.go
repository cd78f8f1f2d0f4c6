// Package lists tests sqube against the documentation of reads: resource versions, lists, pages, selectors, compression.
package lists

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Sections "Resource versions", "Retrieving large results sets in chunks", "Collections" and "Response compression", and the selectors of lists.
func TestLists(t *testing.T) {
	kit.ProveOnEngines(t, nil, slices.Concat(resourceVersions, collections, pages, labelSelectors, fieldSelectors, compression)...)
}

var collections = []kit.Promise{
	{Statement: "a list of any resource is of its list kind, and built-in items omit kind and apiVersion", Proof: func(t *testing.T, c *kit.Cluster) {
		all := kit.Must(c.Kube.Discovery().ServerPreferredResources())(t)
		lists := 0
		for _, group := range all {
			for _, resource := range group.APIResources {
				if !slices.Contains(resource.Verbs, "list") || strings.HasSuffix(group.GroupVersion, ".example.com/v1") {
					continue
				}
				list := c.Get(t, c.ClusterPath(group.GroupVersion, resource.Name)+"?limit=1").OK(t)
				if kind := list.Text(t, "kind"); kind != resource.Kind+"List" || list.Text(t, "apiVersion") != group.GroupVersion || list.ResourceVersion(t) == "" && kind != "ComponentStatusList" {
					t.Errorf("%s: %s %s at %q", list.Request, list.Text(t, "apiVersion"), kind, list.ResourceVersion(t))
				}
				items, ok := list.Value(t, "items").([]any)
				for _, item := range items {
					for _, field := range []string{"kind", "apiVersion"} {
						if value, found := item.(map[string]any)[field]; found {
							t.Errorf("%s: an item has the %s %v", list.Request, field, value)
						}
					}
				}
				if !ok {
					t.Errorf("%s: the items are %v", list.Request, list.Value(t, "items"))
				}
				lists++
			}
		}
		if lists < 50 {
			t.Errorf("only %d resources can be listed", lists)
		}
	}},
	{Statement: "custom resources keep kind and apiVersion in lists", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		empty := c.Get(t, c.Path(version, "widgets")).OK(t)
		kit.Equal(t, []any{empty.Text(t, "kind"), empty.Text(t, "apiVersion"), empty.Value(t, "items")}, []any{"WidgetList", version, []any{}})
		c.Post(t, c.Path(version, "widgets"), kit.Widget(version, "a")).Created(t)
		items := c.Get(t, c.Path(version, "widgets")).OK(t).Value(t, "items").([]any)
		item := items[0].(map[string]any)
		kit.Equal(t, []any{item["kind"], item["apiVersion"]}, []any{"Widget", version})
	}},
	{Statement: "a list of all namespaces has the objects of each, in the order of the bytes of namespace/name", Proof: func(t *testing.T, c *kit.Cluster) {
		other := c.Namespace + "-other" // sorts first, since "-" sorts before "/"
		c.Post(t, c.ClusterPath("v1", "namespaces"), kit.Namespace(other)).Created(t)
		for _, name := range []string{"b", "a", "a.b", "a-b", "ab"} {
			for _, namespace := range []string{c.Namespace, other} {
				c.Post(t, c.ClusterPath("v1", "namespaces", namespace, "secrets"), kit.With(kit.Secret(name), c.Namespace, "metadata", "labels", "of")).Created(t)
			}
		}
		sorted := []string{"a", "a-b", "a.b", "ab", "b"}
		kit.Equal(t, c.Get(t, c.Path("v1", "secrets")).OK(t).Names(t), sorted)
		list := c.Get(t, c.ClusterPath("v1", "secrets")+"?labelSelector=of%3D"+c.Namespace).OK(t)
		var where []string
		for _, item := range list.Value(t, "items").([]any) {
			metadata := item.(map[string]any)["metadata"].(map[string]any)
			where = append(where, fmt.Sprint(metadata["namespace"], "/", metadata["name"]))
		}
		var want []string
		for _, namespace := range []string{other, c.Namespace} {
			for _, name := range sorted {
				want = append(want, namespace+"/"+name)
			}
		}
		kit.Equal(t, where, want)
	}},
	{Statement: "a list of a namespace that does not exist is empty", Proof: func(t *testing.T, c *kit.Cluster) {
		list := c.Get(t, c.ClusterPath("v1", "namespaces", c.Namespace+"-none", "secrets")).OK(t)
		kit.Equal(t, []any{list.Text(t, "kind"), list.Value(t, "items")}, []any{"SecretList", []any{}})
	}},
	{Statement: "a complete list has neither a continue token nor a remaining item count", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		for _, query := range []string{"", "?limit=0", "?limit=1", "?limit=500", "?resourceVersion=0", "?limit=-1"} {
			list := c.Get(t, c.Path("v1", "secrets")+query).OK(t)
			metadata := list.Value(t, "metadata").(map[string]any)
			if version := list.ResourceVersion(t); version == "" || len(metadata) != 1 || !slices.Equal(list.Names(t), []string{"a"}) {
				t.Errorf("%s: %v with the metadata %v", list.Request, list.Names(t), metadata)
			}
		}
	}},
	{Statement: "parameters of former versions of the API are ignored, and so are unknown ones", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		for _, query := range []string{"?includeUninitialized=true", "?exact=true", "?resourceVersion=", "?colour=red", "?continue=", "?timeoutSeconds=10", "?allowWatchBookmarks=true"} {
			kit.Equal(t, c.Get(t, c.Path("v1", "secrets")+query).OK(t).Names(t), []string{"a"})
			if got := c.Get(t, c.Path("v1", "secrets", "a")+query).OK(t).Text(t, "metadata", "uid"); got == "" {
				t.Errorf("%s: the object is empty", query)
			}
		}
	}},
	{Statement: "a get with export, which was removed in 1.21, is rejected, and a list ignores it", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		c.Get(t, c.Path("v1", "secrets", "a")+"?export=true").BadRequest(t, "the export parameter, deprecated since v1.14, is no longer supported")
		c.Get(t, c.Path("v1", "secrets", "a")+"?export=false").OK(t)
		c.Get(t, c.Path("v1", "secrets")+"?export=true").OK(t)
	}},
}
