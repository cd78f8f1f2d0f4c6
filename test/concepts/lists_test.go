package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sections "Retrieving large results sets in chunks", "Collections" and "Response compression", and the selectors of lists.
func TestLists(t *testing.T) {
	prove(t, nil, slices.Concat(collections, pages, labelSelectors, fieldSelectors, compression)...)
}

var collections = []promise{
	{"a list of any resource is a list of its kind, and built-in items leave their kind and apiVersion to the list", func(t *testing.T, c *cluster) {
		all, err := c.kube.Discovery().ServerPreferredResources()
		if err != nil {
			t.Fatal(err)
		}
		lists := 0
		for _, group := range all {
			for _, resource := range group.APIResources {
				if !slices.Contains(resource.Verbs, "list") || strings.HasSuffix(group.GroupVersion, ".example.com/v1") {
					continue
				}
				list := c.get(t, c.global(group.GroupVersion, resource.Name)+"?limit=1").want(t, http.StatusOK)
				if kind := list.text(t, "kind"); kind != resource.Kind+"List" || list.text(t, "apiVersion") != group.GroupVersion || list.version(t) == "" && kind != "ComponentStatusList" {
					t.Errorf("%s: %s %s at %q", list.request, list.text(t, "apiVersion"), kind, list.version(t))
				}
				items, ok := list.value(t, "items").([]any)
				for _, item := range items {
					for _, field := range []string{"kind", "apiVersion"} {
						if value, found := item.(map[string]any)[field]; found {
							t.Errorf("%s: an item has the %s %v", list.request, field, value)
						}
					}
				}
				if !ok {
					t.Errorf("%s: the items are %v", list.request, list.value(t, "items"))
				}
				lists++
			}
		}
		if lists < 50 {
			t.Errorf("only %d resources can be listed", lists)
		}
	}},
	{"custom resources keep kind and apiVersion in lists", func(t *testing.T, c *cluster) {
		version := c.widgets(t, anySchema)
		empty := c.get(t, c.path(version, "widgets")).want(t, http.StatusOK)
		equal(t, []any{empty.text(t, "kind"), empty.text(t, "apiVersion"), empty.value(t, "items")}, []any{"WidgetList", version, []any{}})
		c.post(t, c.path(version, "widgets"), widget(version, "a")).want(t, http.StatusCreated)
		items := c.get(t, c.path(version, "widgets")).want(t, http.StatusOK).value(t, "items").([]any)
		item := items[0].(map[string]any)
		equal(t, []any{item["kind"], item["apiVersion"]}, []any{"Widget", version})
	}},
	{"a list of all namespaces has the objects of each, in the order of the bytes of namespace/name", func(t *testing.T, c *cluster) {
		other := c.namespace + "-other" // comes first, as "-" comes before "/"
		c.post(t, c.global("v1", "namespaces"), namespaceObject(other)).want(t, http.StatusCreated)
		for _, name := range []string{"b", "a", "a.b", "a-b", "ab"} {
			for _, namespace := range []string{c.namespace, other} {
				c.post(t, c.global("v1", "namespaces", namespace, "secrets"), with(secret(name), c.namespace, "metadata", "labels", "of")).want(t, http.StatusCreated)
			}
		}
		sorted := []string{"a", "a-b", "a.b", "ab", "b"}
		equal(t, c.get(t, c.path("v1", "secrets")).want(t, http.StatusOK).names(t), sorted)
		list := c.get(t, c.global("v1", "secrets")+"?labelSelector=of%3D"+c.namespace).want(t, http.StatusOK)
		var where []string
		for _, item := range list.value(t, "items").([]any) {
			metadata := item.(map[string]any)["metadata"].(map[string]any)
			where = append(where, fmt.Sprint(metadata["namespace"], "/", metadata["name"]))
		}
		var want []string
		for _, namespace := range []string{other, c.namespace} {
			for _, name := range sorted {
				want = append(want, namespace+"/"+name)
			}
		}
		equal(t, where, want)
	}},
	{"a list of a namespace that does not exist is empty", func(t *testing.T, c *cluster) {
		list := c.get(t, c.global("v1", "namespaces", c.namespace+"-none", "secrets")).want(t, http.StatusOK)
		equal(t, []any{list.text(t, "kind"), list.value(t, "items")}, []any{"SecretList", []any{}})
	}},
	{"a list of all is complete: it has neither a continue token nor a count of what remains", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		for _, query := range []string{"", "?limit=0", "?limit=1", "?limit=500", "?resourceVersion=0", "?limit=-1"} {
			list := c.get(t, c.path("v1", "secrets")+query).want(t, http.StatusOK)
			metadata := list.value(t, "metadata").(map[string]any)
			if version := list.version(t); version == "" || len(metadata) != 1 || !slices.Equal(list.names(t), []string{"a"}) {
				t.Errorf("%s: %v with the metadata %v", list.request, list.names(t), metadata)
			}
		}
	}},
	{"parameters of former versions of the API are ignored, and so are unknown ones", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		for _, query := range []string{"?includeUninitialized=true", "?exact=true", "?resourceVersion=", "?colour=red", "?continue=", "?timeoutSeconds=10", "?allowWatchBookmarks=true"} {
			equal(t, c.get(t, c.path("v1", "secrets")+query).want(t, http.StatusOK).names(t), []string{"a"})
			if got := c.get(t, c.path("v1", "secrets", "a")+query).want(t, http.StatusOK).text(t, "metadata", "uid"); got == "" {
				t.Errorf("%s: nothing is left of the object", query)
			}
		}
	}},
	{"a get with export, which went with 1.21, is refused, and a list ignores it", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		c.get(t, c.path("v1", "secrets", "a")+"?export=true").refused(t, http.StatusBadRequest, "BadRequest", "the export parameter, deprecated since v1.14, is no longer supported")
		c.get(t, c.path("v1", "secrets", "a")+"?export=false").want(t, http.StatusOK)
		c.get(t, c.path("v1", "secrets")+"?export=true").want(t, http.StatusOK)
	}},
	{"parameters of the wrong type are refused", func(t *testing.T, c *cluster) {
		for query, part := range map[string]string{
			"limit=many": `parsing "many": invalid syntax`, "limit=": `parsing "": invalid syntax`, "limit=1.5": `parsing "1.5": invalid syntax`, "limit=99999999999999999999": "value out of range",
			"timeoutSeconds=soon": `parsing "soon": invalid syntax`, "sendInitialEvents=true": "",
		} {
			a := c.get(t, c.path("v1", "secrets")+"?"+query)
			if part == "" {
				a.refused(t, http.StatusUnprocessableEntity, string(metav1.StatusReasonInvalid), "sendInitialEvents is forbidden for list")
				continue
			}
			a.refused(t, http.StatusBadRequest, string(metav1.StatusReasonBadRequest), part)
		}
	}},
}

func namespaceObject(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
}
