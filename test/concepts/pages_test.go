package concepts

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

var pages = []promise{
	{"a list in pages is that of the first page's revision, whatever happens meanwhile", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		var want []string
		for i := range 9 {
			want = append(want, fmt.Sprintf("s%d", i))
			c.post(t, path, secret(want[i])).want(t, http.StatusCreated)
		}
		first := c.get(t, path+"?limit=2").want(t, http.StatusOK)
		names, page := first.names(t), first
		for i := 0; page.text(t, "metadata", "continue") != ""; i++ {
			c.delete(t, path+"/"+want[i]).want(t, http.StatusOK)
			c.delete(t, path+"/"+want[8-i]).want(t, http.StatusOK)
			c.patch(t, mergePatch, path+"/s4", map[string]any{"metadata": map[string]any{"labels": map[string]any{"n": fmt.Sprint(i)}}}).want(t, http.StatusOK)
			c.post(t, path, secret(want[4]+fmt.Sprint(i))).want(t, http.StatusCreated)
			page = c.next(t, path+"?limit=2", page)
			names = append(names, page.names(t)...)
			if page.version(t) != first.version(t) {
				t.Errorf("the pages are of revisions %s and %s", first.version(t), page.version(t))
			}
			for _, item := range page.value(t, "items").([]any) {
				if metadata := item.(map[string]any)["metadata"].(map[string]any); metadata["labels"] != nil {
					t.Errorf("%v has labels that it had not then", metadata["name"])
				}
			}
		}
		equal(t, names, want)
	}},
	{"remainingItemCount is what is left, exactly, and is missing on the last page", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		for i := range 7 {
			c.post(t, path, secret(fmt.Sprintf("s%d", i))).want(t, http.StatusCreated)
		}
		for limit, want := range map[int][]any{1: {6.0, 5.0, 4.0, 3.0, 2.0, 1.0, nil}, 3: {4.0, 1.0, nil}, 6: {1.0, nil}, 7: {nil}, 8: {nil}} {
			query := fmt.Sprintf("%s?limit=%d", path, limit)
			page := c.get(t, query).want(t, http.StatusOK)
			remaining := []any{page.value(t, "metadata", "remainingItemCount")}
			for page.text(t, "metadata", "continue") != "" {
				page = c.next(t, query, page)
				remaining = append(remaining, page.value(t, "metadata", "remainingItemCount"))
			}
			equal(t, remaining, want)
		}
		// At an exact revision it counts what there was then.
		then := c.get(t, path).version(t)
		c.delete(t, path+"/s6").want(t, http.StatusOK)
		old := c.get(t, path+"?limit=2&resourceVersion="+then).want(t, http.StatusOK)
		equal(t, old.value(t, "metadata", "remainingItemCount"), any(5.0))
	}},
	{"a limit may be any number: one that no list reaches is none, whatever the selector", func(t *testing.T, c *cluster) {
		version := c.widgets(t, anySchema)
		for path, object := range map[string]map[string]any{
			c.path("v1", "secrets"):    secret("a"),
			c.path(version, "widgets"): widget(version, "a"),
		} {
			c.post(t, path, object).want(t, http.StatusCreated)
			for _, limit := range []string{"9223372036854775807", "9223372036854775806", "4294967296", "2147483648", "2147483647", "501", "500"} {
				for selector, want := range map[string][]string{"": {"a"}, "&labelSelector=no%3Dbody": {}, "&labelSelector=!no": {"a"}, "&fieldSelector=metadata.name%3Db": {}} {
					list := c.get(t, path+"?limit="+limit+selector).want(t, http.StatusOK)
					equal(t, list.names(t), want)
					equal(t, list.text(t, "metadata", "continue"), "")
				}
			}
		}
	}},
	{"with a selector pages are full, and there is no remainingItemCount", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		var want []string
		for i := range 12 {
			s := secret(fmt.Sprintf("s%02d", i))
			if i%4 == 3 {
				s = with(s, "yes", "metadata", "labels", "chosen")
				want = append(want, fmt.Sprintf("s%02d", i))
			}
			c.post(t, path, s).want(t, http.StatusCreated)
		}
		query := path + "?limit=2&labelSelector=chosen"
		first := c.get(t, query).want(t, http.StatusOK)
		second := c.next(t, query, first)
		equal(t, first.names(t), want[:2])
		equal(t, second.names(t), want[2:])
		equal(t, []any{first.value(t, "metadata", "remainingItemCount"), second.value(t, "metadata", "remainingItemCount"), second.text(t, "metadata", "continue")}, []any{nil, nil, ""})
		byField := c.get(t, path+"?limit=2&fieldSelector=metadata.name!%3Ds00").want(t, http.StatusOK)
		equal(t, byField.names(t), []string{"s01", "s02"})
		equal(t, byField.value(t, "metadata", "remainingItemCount"), nil)
	}},
	{"a page may have another limit than the one before, or none", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		for i := range 6 {
			c.post(t, path, secret(fmt.Sprintf("s%d", i))).want(t, http.StatusCreated)
		}
		first := c.get(t, path+"?limit=1").want(t, http.StatusOK)
		second := c.next(t, path+"?limit=3", first)
		equal(t, second.names(t), []string{"s1", "s2", "s3"})
		equal(t, c.next(t, path+"?", second).names(t), []string{"s4", "s5"})
		equal(t, c.next(t, path+"?", first).names(t), []string{"s1", "s2", "s3", "s4", "s5"})
		equal(t, c.next(t, path+"?limit=3", first).names(t), second.names(t)) // again
	}},
	{"a list of all namespaces goes on from one to the next", func(t *testing.T, c *cluster) {
		var want []string
		for _, namespace := range []string{c.namespace, c.namespace + "-b", c.namespace + "-c"} {
			if namespace != c.namespace {
				c.post(t, c.global("v1", "namespaces"), namespaceObject(namespace)).want(t, http.StatusCreated)
			}
			for _, name := range []string{"x", "y"} {
				c.post(t, c.global("v1", "namespaces", namespace, "secrets"), with(secret(name), c.namespace, "metadata", "labels", "of")).want(t, http.StatusCreated)
				want = append(want, name)
			}
		}
		query := c.global("v1", "secrets") + "?limit=1&labelSelector=of%3D" + c.namespace
		page := c.get(t, query).want(t, http.StatusOK)
		names := page.names(t)
		for page.text(t, "metadata", "continue") != "" {
			page = c.next(t, query, page)
			names = append(names, page.names(t)...)
		}
		equal(t, names, want)
	}},
	{"the selectors of a page are its own: a token does not keep them", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.post(t, path, with(secret(name), name, "metadata", "labels", "is")).want(t, http.StatusCreated)
		}
		first := c.get(t, path+"?limit=1&labelSelector=is").want(t, http.StatusOK)
		equal(t, c.next(t, path+"?labelSelector=is%3Dc", first).names(t), []string{"c"})
	}},
	{"a token holds a revision and a place in the order of names, which stand for any collection", func(t *testing.T, c *cluster) {
		for _, name := range []string{"a", "b", "c"} {
			c.post(t, c.path("v1", "secrets"), secret(name)).want(t, http.StatusCreated)
			c.post(t, c.path("v1", "services"), with(service(name), "None", "spec", "clusterIP")).want(t, http.StatusCreated)
		}
		page := c.get(t, c.path("v1", "secrets")+"?limit=1").want(t, http.StatusOK)
		rest := c.next(t, c.path("v1", "services")+"?", page)
		equal(t, rest.names(t), []string{"b", "c"})
		elsewhere := c.next(t, c.global("v1", "namespaces", c.namespace+"-none", "secrets")+"?", page)
		equal(t, elsewhere.names(t), []string{})
		if rest.version(t) != page.version(t) || elsewhere.version(t) != page.version(t) {
			t.Errorf("the revision is %s, then %s and %s", page.version(t), rest.version(t), elsewhere.version(t))
		}
	}},
	{"what is no continue token is refused", func(t *testing.T, c *cluster) {
		invalid := "invalid continue token: continue key is not valid"
		for token, message := range map[string]string{
			"***": invalid, "zzz": invalid, "bnVsbA": invalid + ": server does not recognize this encoded version", continueToken(0, "a"): invalid + ": incorrect encoded start resourceVersion",
			continueToken(1, ""): invalid + ": encoded start key empty", continueToken(1, "../a"): invalid + ": ../a", continueToken(1, "a/../b"): invalid + ": a/../b",
			continueToken(1, ".."): invalid, continueToken(1, "a//b"): invalid, encoded(`{"v":"meta.k8s.io/v2","rv":1,"start":"a"}`): "does not recognize this encoded version meta.k8s.io/v2",
			encoded(`{"v":"meta.k8s.io/v1","rv":"1","start":"a"}`): invalid, encoded(`[]`): invalid, encoded(`{`): invalid,
		} {
			for _, query := range []string{"?continue=", "?limit=1&continue="} {
				c.get(t, c.path("v1", "secrets")+query+url.QueryEscape(token)).refused(t, http.StatusBadRequest, "BadRequest", message)
			}
		}
	}},
	{"a list of one object by name does not mind a limit", func(t *testing.T, c *cluster) {
		for _, name := range []string{"a", "b"} {
			c.post(t, c.path("v1", "secrets"), secret(name)).want(t, http.StatusCreated)
		}
		list := c.get(t, c.path("v1", "secrets")+"?limit=1&fieldSelector=metadata.name%3Da").want(t, http.StatusOK)
		equal(t, list.names(t), []string{"a"})
		equal(t, list.text(t, "metadata", "continue"), "")
	}},
	{"clients that page by themselves see all", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		var want []string
		for i := range 25 {
			want = append(want, fmt.Sprintf("s%02d", i))
			c.post(t, path, secret(want[i])).want(t, http.StatusCreated)
		}
		output, ok := c.kubectl(t, "", "get", "secrets", "-o", "name", "--chunk-size=10")
		for _, name := range want {
			if !ok || !slices.Contains(strings.Fields(output), "secret/"+name) {
				t.Fatalf("%s is missing in\n%s", name, output)
			}
		}
	}},
}

// next is the page behind one. The query is that of the first, and may end in "?".
func (c *client) next(t testing.TB, query string, page answer) answer {
	t.Helper()
	return c.get(t, query+"&continue="+url.QueryEscape(page.text(t, "metadata", "continue"))).want(t, http.StatusOK)
}
