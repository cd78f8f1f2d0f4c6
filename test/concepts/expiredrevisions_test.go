package concepts

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
)

// "410 Gone" responses to lists. Those to watches are in TestWatch.
func TestExpiredRevisions(t *testing.T) {
	prove(t, []string{"--retention=1s", "--compact-interval=100ms"},
		promise{"a list at an exact revision that is no longer kept is answered with 410", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			old := c.post(t, path, secret("a")).want(t, http.StatusCreated).version(t)
			exact := path + "?resourceVersionMatch=Exact&resourceVersion=" + old
			c.outlive(t, exact)
			for _, query := range []string{"&limit=1", "&labelSelector=a", "&fieldSelector=metadata.name%3Da"} {
				c.get(t, exact+query).refused(t, http.StatusGone, "Expired", "The resourceVersion for the provided list is too old.")
			}
			c.get(t, path+"?limit=1&resourceVersion="+old).refused(t, http.StatusGone, "Expired", "The resourceVersion for the provided list is too old.")
			c.send(t, http.MethodGet, exact, header{"Accept", "application/vnd.kubernetes.protobuf, application/json"}, nil).want(t, http.StatusGone)
		}},
		promise{"a read that must not be older than a revision does not mind that it is no longer kept", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			old := c.post(t, path, secret("a")).want(t, http.StatusCreated).version(t)
			c.outlive(t, path+"?resourceVersionMatch=Exact&resourceVersion="+old)
			for _, query := range []string{"?resourceVersion=", "?resourceVersionMatch=NotOlderThan&resourceVersion=", "?resourceVersionMatch=NotOlderThan&limit=5&resourceVersion="} {
				equal(t, c.get(t, path+query+old).want(t, http.StatusOK).names(t), []string{"a"})
			}
			c.get(t, path+"/a?resourceVersion="+old).want(t, http.StatusOK)
		}},
		promise{"an expired continue token is answered with 410 and a token, with which the rest can be read as it is now", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			for _, name := range []string{"a", "b", "c"} {
				c.post(t, path, secret(name)).want(t, http.StatusCreated)
			}
			first := c.get(t, path+"?limit=1").want(t, http.StatusOK)
			c.delete(t, path+"/b").want(t, http.StatusOK)
			c.post(t, path, secret("d")).want(t, http.StatusCreated)
			c.post(t, path, secret("0")).want(t, http.StatusCreated) // behind which the list is already
			rest := path + "?limit=1&continue=" + url.QueryEscape(first.text(t, "metadata", "continue"))
			c.outlive(t, rest)
			expired := c.get(t, rest).refused(t, http.StatusGone, "Expired", "The provided continue parameter is too old to display a consistent list result. You can start a new list without "+
				"the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list")
			second := c.next(t, path+"?limit=1", expired)
			equal(t, second.names(t), []string{"c"})
			equal(t, second.value(t, "metadata", "remainingItemCount"), any(1.0))
			if second.version(t) == first.version(t) {
				t.Errorf("the rest is of revision %s, which is no longer kept", second.version(t))
			}
			// From there on the list is consistent again.
			third := c.next(t, path+"?limit=1", second)
			equal(t, third.names(t), []string{"d"})
			if third.version(t) != second.version(t) {
				t.Errorf("the rest is of revisions %s and %s", second.version(t), third.version(t))
			}
			equal(t, c.next(t, path+"?", expired).names(t), []string{"c", "d"})
		}},
		promise{"a token that names its place in another form goes on from the same place", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			for _, name := range []string{"a", "b"} {
				c.post(t, path, secret(name)).want(t, http.StatusCreated)
			}
			for start, names := range map[string][]string{"b": {"b"}, "/b": {"b"}, "a\x00": {"b"}, "/a\x00": {"b"}, "/": {"a", "b"}, "b\x00": {}, "c": {}} {
				query := path + "?continue=" + continueToken(1, start)
				c.outlive(t, query)
				expired := c.get(t, query).refused(t, http.StatusGone, "Expired")
				if start != "/" {
					equal(t, c.next(t, path+"?", expired).names(t), names)
				}
			}
		}},
		promise{"what is current is never forgotten", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			old := c.post(t, path, secret("a")).want(t, http.StatusCreated)
			c.outlive(t, path+"?resourceVersionMatch=Exact&resourceVersion="+old.version(t))
			list := c.get(t, path).want(t, http.StatusOK)
			again := c.get(t, path+"?resourceVersionMatch=Exact&resourceVersion="+list.version(t)).want(t, http.StatusOK)
			equal(t, again.names(t), []string{"a"})
			equal(t, c.get(t, path+"/a").version(t), old.version(t))
		}},
	)
}

// outlive waits until the revision that the path names is no longer kept. It writes, since what is newest always is kept.
func (c *cluster) outlive(t testing.TB, path string) {
	t.Helper()
	written := 0
	eventually(t, "410 for "+path, func() bool {
		written++
		annotations := map[string]any{"written": fmt.Sprint(written)}
		c.patch(t, mergePatch, c.global("v1", "namespaces", c.namespace), map[string]any{"metadata": map[string]any{"annotations": annotations}}).want(t, http.StatusOK)
		return c.get(t, path).Code == http.StatusGone
	})
}
