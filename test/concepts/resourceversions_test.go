package concepts

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Section "Resource versions": their semantics for get and list. Those for watch are in TestWatch.
func TestResourceVersions(t *testing.T) {
	prove(t, nil,
		promise{"every change gives an object another resourceVersion, a string; a read does not", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets", "a")
			created := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
			seen := []string{created.version(t)}
			for i := range 3 {
				seen = append(seen, c.patch(t, mergePatch, path, map[string]any{"stringData": map[string]string{"n": fmt.Sprint(i)}}).want(t, http.StatusOK).version(t))
			}
			if slices.Sort(seen); seen[0] == "" || len(slices.Compact(slices.Clone(seen))) != 4 {
				t.Errorf("the resourceVersions are %q", seen)
			}
			for range 2 {
				if got := c.get(t, path).version(t); !slices.Contains(seen, got) {
					t.Errorf("a read has made it %s", got)
				}
			}
		}},
		promise{"what was written has the same resourceVersion in the answer to the write, in a get, in a list and in a watch", func(t *testing.T, c *cluster) {
			written := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated).version(t)
			list := c.get(t, c.path("v1", "secrets")).want(t, http.StatusOK)
			item, _ := list.value(t, "items").([]any)
			watched := c.watch(t, c.path("v1", "secrets")+"?watch=true&resourceVersion=0").next(t)
			for where, version := range map[string]string{
				"get":   c.get(t, c.path("v1", "secrets", "a")).version(t),
				"list":  event{Object: item[0].(map[string]any)}.version(),
				"watch": watched.version(),
			} {
				if version != written {
					t.Errorf("%s says %s instead of %s", where, version, written)
				}
			}
		}},
		promise{"a list has a resourceVersion of its own, which goes on while its items stay as they are", func(t *testing.T, c *cluster) {
			item := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated).version(t)
			c.delete(t, c.path("v1", "secrets", c.post(t, c.path("v1", "secrets"), secret("b")).text(t, "metadata", "name"))).want(t, http.StatusOK)
			list := c.get(t, c.path("v1", "secrets")).want(t, http.StatusOK)
			if list.version(t) == "" || list.version(t) == item {
				t.Errorf("the list has %q, its only item %s", list.version(t), item)
			}
		}},
		promise{"a get without a resourceVersion sees every write that was answered before", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets", "a")
			c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
			for i := range 20 {
				version := c.patch(t, mergePatch, path, map[string]any{"stringData": map[string]string{"n": fmt.Sprint(i)}}).want(t, http.StatusOK).version(t)
				for _, query := range []string{"", "?resourceVersion="} {
					if got := c.get(t, path+query).want(t, http.StatusOK).version(t); got != version {
						t.Errorf("%s was written, %s read", version, got)
					}
				}
			}
		}},
		promise{"a get at a resourceVersion is answered with that state or a newer one", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets", "a")
			old := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated).version(t)
			last := c.patch(t, mergePatch, path, `{"stringData":{"n":"1"}}`).want(t, http.StatusOK).version(t)
			if got := c.get(t, path+"?resourceVersion="+last).want(t, http.StatusOK).version(t); got != last {
				t.Errorf("not older than %s is %s", last, got)
			}
			for _, version := range []string{"0", "1", old} {
				if got := c.get(t, path+"?resourceVersion="+version).want(t, http.StatusOK).version(t); got != old && got != last {
					t.Errorf("at %s it is %s", version, got)
				}
			}
			c.delete(t, path).want(t, http.StatusOK)
			after := c.get(t, c.path("v1", "secrets")).version(t)
			c.get(t, path+"?resourceVersion="+after).refused(t, http.StatusNotFound, "NotFound", `secrets "a" not found`)
		}},
		promise{"a get has no resourceVersionMatch: it is ignored", func(t *testing.T, c *cluster) {
			version := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated).version(t)
			path := c.path("v1", "secrets", "a")
			c.patch(t, mergePatch, path, `{"stringData":{"n":"1"}}`).want(t, http.StatusOK)
			c.get(t, path+"?resourceVersionMatch=Exact&resourceVersion="+version).want(t, http.StatusOK)
			c.get(t, path+"?resourceVersionMatch=nonsense").want(t, http.StatusOK)
		}},
		promise{"what is no resourceVersion is refused by get and list", func(t *testing.T, c *cluster) {
			c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
			for _, version := range []string{"x", "-1", "1.0", "0x1", "99999999999999999999", "1 OR 1=1"} {
				query := "?resourceVersion=" + url.QueryEscape(version)
				message := fmt.Sprintf("invalid resource version: resourceVersion: Invalid value: %q", version)
				for _, match := range []string{"", "&limit=1", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"} {
					c.get(t, c.path("v1", "secrets")+query+match).refused(t, http.StatusBadRequest, "BadRequest", message)
				}
				// kube-apiserver takes this one for an error of its own, with 500.
				if a := c.get(t, c.path("v1", "secrets", "a")+query); a.Code != http.StatusInternalServerError || *against == "" {
					a.refused(t, http.StatusBadRequest, "BadRequest", message)
				}
			}
		}},
		promise{"a list does with resourceVersion, resourceVersionMatch, limit and continue what the documents' table says", func(t *testing.T, c *cluster) {
			newTable(t, c, c.path("v1", "secrets"), secret).check(t)
		}},
		promise{"a list of custom resources does the same", func(t *testing.T, c *cluster) {
			version := c.widgets(t, anySchema)
			newTable(t, c, c.path(version, "widgets"), func(name string) map[string]any { return widget(version, name) }).check(t)
		}},
		promise{"a list of all namespaces does the same", func(t *testing.T, c *cluster) {
			labelled := func(name string) map[string]any { return with(secret(name), c.namespace, "metadata", "labels", "of") }
			newTable(t, c, c.path("v1", "secrets"), labelled, c.global("v1", "secrets"), "&labelSelector=of%3D"+c.namespace).check(t)
		}},
		promise{"a list at an exact revision shows each state of the collection as it was", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			var states [][]string
			var versions []string
			note := func() {
				list := c.get(t, path).want(t, http.StatusOK)
				states, versions = append(states, list.names(t)), append(versions, list.version(t))
			}
			for _, name := range []string{"c", "a", "b"} {
				c.post(t, path, secret(name)).want(t, http.StatusCreated)
				note()
			}
			c.delete(t, path+"/a").want(t, http.StatusOK)
			note()
			c.post(t, path, secret("a")).want(t, http.StatusCreated)
			note()
			for i, version := range versions {
				list := c.get(t, path+"?resourceVersionMatch=Exact&resourceVersion="+version).want(t, http.StatusOK)
				if !slices.Equal(list.names(t), states[i]) || list.version(t) != version {
					t.Errorf("at %s there were %q, and are %q at %s", version, states[i], list.names(t), list.version(t))
				}
			}
		}},
		promise{"a list at an exact revision has the objects as they were then", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			created := c.post(t, path, secret("a")).want(t, http.StatusCreated)
			c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"now":"yes"}}}`).want(t, http.StatusOK)
			for query, found := range map[string]int{"": 1, "&labelSelector=now": 0, "&labelSelector=!now": 1, "&fieldSelector=metadata.name%3Da": 1} {
				list := c.get(t, path+"?resourceVersionMatch=Exact&resourceVersion="+created.version(t)+query).want(t, http.StatusOK)
				items, _ := list.value(t, "items").([]any)
				if len(items) != found {
					t.Errorf("%q finds %d", query, len(items))
				}
				for _, item := range items {
					if got := (event{Object: item.(map[string]any)}).version(); got != created.version(t) {
						t.Errorf("%q finds it at %s instead of %s", query, got, created.version(t))
					}
				}
			}
		}},
		promise{"a revision that does not come is answered after a while with 504, its cause and Retry-After", func(t *testing.T, c *cluster) {
			c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
			const never = "9000000000000"
			token := url.QueryEscape(continueToken(9000000000000, "a"))
			paths := []string{
				c.path("v1", "secrets", "a") + "?resourceVersion=" + never,
				c.path("v1", "secrets", "none") + "?resourceVersion=" + never,
				c.path("v1", "secrets") + "?resourceVersion=" + never,
				c.path("v1", "secrets") + "?limit=1&resourceVersion=" + never,
				c.path("v1", "secrets") + "?resourceVersionMatch=NotOlderThan&resourceVersion=" + never,
				c.path("v1", "secrets") + "?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=" + never,
				c.path("v1", "secrets") + "?resourceVersionMatch=Exact&resourceVersion=" + never,
				c.path("v1", "secrets") + "?limit=1&continue=" + token,
				c.global("v1", "secrets") + "?resourceVersion=" + never,
			}
			answers := make([]answer, len(paths))
			var waiting sync.WaitGroup // for all at once, since each takes its while
			for i, path := range paths {
				waiting.Go(func() { answers[i] = c.get(t, path) })
			}
			waiting.Wait()
			for _, a := range answers {
				a.refused(t, http.StatusGatewayTimeout, "Timeout", "Too large resource version: "+never+", current: ")
				equal(t, a.value(t, "details", "causes"), any([]any{map[string]any{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}}))
				if seconds := a.value(t, "details", "retryAfterSeconds"); seconds != 1.0 || a.Header.Get("Retry-After") != "1" {
					t.Errorf("%s: come again after %v and %q seconds", a.request, seconds, a.Header.Get("Retry-After"))
				}
			}
		}},
		promise{"a read that waits for a revision is answered as soon as that comes", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			c.post(t, path, secret("a")).want(t, http.StatusCreated)
			for _, query := range []string{"/a?resourceVersion=", "?resourceVersion=", "?resourceVersionMatch=NotOlderThan&limit=1&resourceVersion=", "?resourceVersionMatch=Exact&resourceVersion="} {
				answered := false
				for attempt := 0; attempt < 5 && !answered; attempt++ { // since a busy machine may take longer to write than the read waits
					wanted := number(t, c.get(t, path)) + 20
					answers := make(chan int, 1)
					go func() { answers <- c.code(path + query + strconv.FormatInt(wanted, 10)) }()
					for i, at := 0, int64(0); at < wanted; i++ {
						at = number(t, c.patch(t, mergePatch, path+"/a", map[string]any{"stringData": map[string]string{"n": fmt.Sprint(attempt, i)}}).want(t, http.StatusOK))
					}
					answered = <-answers == http.StatusOK
				}
				if !answered {
					t.Errorf("%s: it came, and was never sent", query)
				}
			}
		}},
	)
}

// secret is an object of a collection in which nothing appears by itself.
func secret(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}}
}

// code is that of the answer to a GET, or 0 if there was none.
func (c *client) code(path string) int {
	response, err := c.http.Get(c.url + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// number is the resourceVersion as the servers here count it. A client must not: to it, versions are opaque.
func number(t testing.TB, a answer) int64 {
	t.Helper()
	n, err := strconv.ParseInt(a.version(t), 10, 64)
	if err != nil {
		t.Errorf("%s: %v", a.request, err)
	}
	return n
}
