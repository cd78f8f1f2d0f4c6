package lists

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// Section "Resource versions": their semantics for get and list. Those for watch are in TestWatch.
var resourceVersions = []kit.Promise{
	{Statement: "every change gives an object a new resourceVersion, a string; a read does not", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets", "a")
		created := c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		seen := []string{created.ResourceVersion(t)}
		for i := range 3 {
			seen = append(seen, c.Patch(t, kit.MergePatch, path, map[string]any{"stringData": map[string]string{"n": fmt.Sprint(i)}}).OK(t).ResourceVersion(t))
		}
		if slices.Sort(seen); seen[0] == "" || len(slices.Compact(slices.Clone(seen))) != 4 {
			t.Errorf("the resourceVersions are %q", seen)
		}
		for range 2 {
			if got := c.Get(t, path).ResourceVersion(t); !slices.Contains(seen, got) {
				t.Errorf("a read has changed it to %s", got)
			}
		}
	}},
	{Statement: "a written object has the same resourceVersion in the response to the write, in a get, in a list and in a watch", Proof: func(t *testing.T, c *kit.Cluster) {
		written := c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t).ResourceVersion(t)
		list := c.Get(t, c.Path("v1", "secrets")).OK(t)
		item, _ := list.Value(t, "items").([]any)
		watched := c.Watch(t, c.Path("v1", "secrets")+"?watch=true&resourceVersion=0").Next(t)
		for where, version := range map[string]string{
			"get":   c.Get(t, c.Path("v1", "secrets", "a")).ResourceVersion(t),
			"list":  kit.Event{Object: item[0].(map[string]any)}.ResourceVersion(),
			"watch": watched.ResourceVersion(),
		} {
			if version != written {
				t.Errorf("%s has %s instead of %s", where, version, written)
			}
		}
	}},
	{Statement: "a list has its own resourceVersion, which rises even if its items are unchanged", Proof: func(t *testing.T, c *kit.Cluster) {
		item := c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t).ResourceVersion(t)
		c.Delete(t, c.Path("v1", "secrets", c.Post(t, c.Path("v1", "secrets"), kit.Secret("b")).Text(t, "metadata", "name"))).OK(t)
		list := c.Get(t, c.Path("v1", "secrets")).OK(t)
		if list.ResourceVersion(t) == "" || list.ResourceVersion(t) == item {
			t.Errorf("the list has %q, its only item %s", list.ResourceVersion(t), item)
		}
	}},
	{Statement: "a get without a resourceVersion returns every previously acknowledged write", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets", "a")
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		for i := range 20 {
			version := c.Patch(t, kit.MergePatch, path, map[string]any{"stringData": map[string]string{"n": fmt.Sprint(i)}}).OK(t).ResourceVersion(t)
			for _, query := range []string{"", "?resourceVersion="} {
				kit.Equal(t, c.Get(t, path+query).OK(t).ResourceVersion(t), version)
			}
		}
	}},
	{Statement: "a get at a resourceVersion returns that state or a newer one", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets", "a")
		old := c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t).ResourceVersion(t)
		last := c.Patch(t, kit.MergePatch, path, `{"stringData":{"n":"1"}}`).OK(t).ResourceVersion(t)
		kit.Equal(t, c.Get(t, path+"?resourceVersion="+last).OK(t).ResourceVersion(t), last)
		for _, version := range []string{"0", "1", old} {
			if got := c.Get(t, path+"?resourceVersion="+version).OK(t).ResourceVersion(t); got != old && got != last {
				t.Errorf("at %s it is %s", version, got)
			}
		}
		c.Delete(t, path).OK(t)
		after := c.Get(t, c.Path("v1", "secrets")).ResourceVersion(t)
		c.Get(t, path+"?resourceVersion="+after).NotFound(t, `secrets "a" not found`)
	}},
	{Statement: "a get ignores resourceVersionMatch", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t).ResourceVersion(t)
		path := c.Path("v1", "secrets", "a")
		c.Patch(t, kit.MergePatch, path, `{"stringData":{"n":"1"}}`).OK(t)
		c.Get(t, path+"?resourceVersionMatch=Exact&resourceVersion="+version).OK(t)
		c.Get(t, path+"?resourceVersionMatch=nonsense").OK(t)
	}},
	{Statement: "lists handle resourceVersion, resourceVersionMatch, limit and continue as in the documentation's table", Proof: func(t *testing.T, c *kit.Cluster) {
		newTable(t, c, c.Path("v1", "secrets"), kit.Secret).check(t)
	}},
	{Statement: "lists of custom resources do the same", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		newTable(t, c, c.Path(version, "widgets"), func(name string) map[string]any { return kit.Widget(version, name) }).check(t)
	}},
	{Statement: "lists of all namespaces do the same", Proof: func(t *testing.T, c *kit.Cluster) {
		labelled := func(name string) map[string]any {
			return kit.With(kit.Secret(name), c.Namespace, "metadata", "labels", "of")
		}
		newTable(t, c, c.Path("v1", "secrets"), labelled, c.ClusterPath("v1", "secrets"), "&labelSelector=of%3D"+c.Namespace).check(t)
	}},
	{Statement: "a list at an exact revision returns any past state of the collection", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		var states [][]string
		var versions []string
		note := func() {
			list := c.Get(t, path).OK(t)
			states, versions = append(states, list.Names(t)), append(versions, list.ResourceVersion(t))
		}
		for _, name := range []string{"c", "a", "b"} {
			c.Post(t, path, kit.Secret(name)).Created(t)
			note()
		}
		c.Delete(t, path+"/a").OK(t)
		note()
		c.Post(t, path, kit.Secret("a")).Created(t)
		note()
		for i, version := range versions {
			list := c.Get(t, path+"?resourceVersionMatch=Exact&resourceVersion="+version).OK(t)
			if !slices.Equal(list.Names(t), states[i]) || list.ResourceVersion(t) != version {
				t.Errorf("at %s there were %q, but the list has %q at %s", version, states[i], list.Names(t), list.ResourceVersion(t))
			}
		}
	}},
	{Statement: "a list at an exact revision has the objects' past state", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		created := c.Post(t, path, kit.Secret("a")).Created(t)
		c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"now":"yes"}}}`).OK(t)
		for query, found := range map[string]int{"": 1, "&labelSelector=now": 0, "&labelSelector=!now": 1, "&fieldSelector=metadata.name%3Da": 1} {
			list := c.Get(t, path+"?resourceVersionMatch=Exact&resourceVersion="+created.ResourceVersion(t)+query).OK(t)
			items, _ := list.Value(t, "items").([]any)
			if len(items) != found {
				t.Errorf("%q finds %d", query, len(items))
			}
			for _, item := range items {
				if got := (kit.Event{Object: item.(map[string]any)}).ResourceVersion(); got != created.ResourceVersion(t) {
					t.Errorf("%q finds it at %s instead of %s", query, got, created.ResourceVersion(t))
				}
			}
		}
	}},
	{Statement: "a revision that is not reached gets 504 after a while, with its cause and Retry-After", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		const never = "9000000000000"
		token := url.QueryEscape(continueToken(9000000000000, "a"))
		paths := []string{
			c.Path("v1", "secrets", "a") + "?resourceVersion=" + never,
			c.Path("v1", "secrets", "none") + "?resourceVersion=" + never,
			c.Path("v1", "secrets") + "?resourceVersion=" + never,
			c.Path("v1", "secrets") + "?limit=1&resourceVersion=" + never,
			c.Path("v1", "secrets") + "?resourceVersionMatch=NotOlderThan&resourceVersion=" + never,
			c.Path("v1", "secrets") + "?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=" + never,
			c.Path("v1", "secrets") + "?resourceVersionMatch=Exact&resourceVersion=" + never,
			c.Path("v1", "secrets") + "?limit=1&continue=" + token,
			c.ClusterPath("v1", "secrets") + "?resourceVersion=" + never,
		}
		answers := make([]kit.Answer, len(paths))
		var waiting sync.WaitGroup // all at once, since each takes a while
		for i, path := range paths {
			waiting.Go(func() { answers[i] = c.Get(t, path) })
		}
		waiting.Wait()
		for _, a := range answers {
			a.Refused(t, http.StatusGatewayTimeout, "Timeout", "Too large resource version: "+never+", current: ")
			kit.Equal(t, a.Value(t, "details", "causes"), any([]any{map[string]any{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}}))
			if seconds := a.Value(t, "details", "retryAfterSeconds"); seconds != 1.0 || a.Header.Get("Retry-After") != "1" {
				t.Errorf("%s: retry after %v and %q seconds", a.Request, seconds, a.Header.Get("Retry-After"))
			}
		}
	}},
	{Statement: "a read that waits for a revision returns as soon as that is reached", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		c.Post(t, path, kit.Secret("a")).Created(t)
		for _, query := range []string{"/a?resourceVersion=", "?resourceVersion=", "?resourceVersionMatch=NotOlderThan&limit=1&resourceVersion=", "?resourceVersionMatch=Exact&resourceVersion="} {
			answered := false
			for attempt := 0; attempt < 5 && !answered; attempt++ { // on a busy machine the write may take longer than the read waits
				wanted := number(t, c.Get(t, path)) + 10
				answers := make(chan int, 1)
				go func() { answers <- code(c.Client, path+query+strconv.FormatInt(wanted, 10)) }()
				for i, at := 0, int64(0); at < wanted; i++ {
					at = number(t, c.Patch(t, kit.MergePatch, path+"/a", map[string]any{"stringData": map[string]string{"n": fmt.Sprint(attempt, i)}}).OK(t))
				}
				answered = <-answers == http.StatusOK
			}
			if !answered {
				t.Errorf("%s: the revision was reached, but never returned", query)
			}
		}
	}},
}

// code returns the status of a GET, or 0 if there was no response.
func code(c *kit.Client, path string) int {
	response, err := c.HTTP.Get(c.URL + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// number returns a resourceVersion as a number. Clients must not do that: to them, versions are opaque.
func number(t testing.TB, a kit.Answer) int64 {
	t.Helper()
	n, err := strconv.ParseInt(a.ResourceVersion(t), 10, 64)
	if err != nil {
		t.Errorf("%s: %v", a.Request, err)
	}
	return n
}
