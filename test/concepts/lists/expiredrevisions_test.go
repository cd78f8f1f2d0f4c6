package lists

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// "410 Gone" responses to lists. Those for watches are in TestWatch.
func TestExpiredRevisions(t *testing.T) {
	kit.ProveOnEngines(t, []string{"--retention=1s", "--compact-interval=100ms", "--history=0"},
		kit.Promise{Statement: "a list at an exact revision that is no longer kept returns 410", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "secrets")
			old := c.Post(t, path, kit.Secret("a")).Created(t).ResourceVersion(t)
			exact := path + "?resourceVersionMatch=Exact&resourceVersion=" + old
			outlive(t, c, exact)
			for _, query := range []string{"&limit=1", "&labelSelector=a", "&fieldSelector=metadata.name%3Da"} {
				c.Get(t, exact+query).Refused(t, http.StatusGone, "Expired", "The resourceVersion for the provided list is too old.")
			}
			c.Get(t, path+"?limit=1&resourceVersion="+old).Refused(t, http.StatusGone, "Expired", "The resourceVersion for the provided list is too old.")
			c.Send(t, http.MethodGet, exact, kit.Header{"Accept", "application/vnd.kubernetes.protobuf, application/json"}, nil).Want(t, http.StatusGone)
		}},
		kit.Promise{Statement: "a read not older than a revision works even if that revision is no longer kept", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "secrets")
			old := c.Post(t, path, kit.Secret("a")).Created(t).ResourceVersion(t)
			outlive(t, c, path+"?resourceVersionMatch=Exact&resourceVersion="+old)
			for _, query := range []string{"?resourceVersion=", "?resourceVersionMatch=NotOlderThan&resourceVersion=", "?resourceVersionMatch=NotOlderThan&limit=5&resourceVersion="} {
				kit.Equal(t, c.Get(t, path+query+old).OK(t).Names(t), []string{"a"})
			}
			c.Get(t, path+"/a?resourceVersion="+old).OK(t)
		}},
		kit.Promise{Statement: "an expired continue token gets 410 and a token for reading the current rest of the list", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "secrets")
			for _, name := range []string{"a", "b", "c"} {
				c.Post(t, path, kit.Secret(name)).Created(t)
			}
			first := c.Get(t, path+"?limit=1").OK(t)
			c.Delete(t, path+"/b").OK(t)
			c.Post(t, path, kit.Secret("d")).Created(t)
			c.Post(t, path, kit.Secret("0")).Created(t) // sorts before the list's position
			rest := path + "?limit=1&continue=" + url.QueryEscape(first.Text(t, "metadata", "continue"))
			outlive(t, c, rest)
			expired := c.Get(t, rest).Refused(t, http.StatusGone, "Expired", "The provided continue parameter is too old to display a consistent list result. You can start a new list without "+
				"the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list")
			var second, third kit.Answer
			harness.Eventually(t, "the next page is read before its revision is no longer kept, too", func() bool {
				second = c.NextPage(t, path+"?limit=1", expired)
				third = c.Get(t, path+"?limit=1&continue="+url.QueryEscape(second.Text(t, "metadata", "continue"))).Want(t, http.StatusOK, http.StatusGone)
				return third.Code == http.StatusOK
			})
			kit.Equal(t, second.Names(t), []string{"c"})
			kit.Equal(t, second.Value(t, "metadata", "remainingItemCount"), any(1.0))
			if second.ResourceVersion(t) == first.ResourceVersion(t) {
				t.Errorf("the rest is from revision %s, which is no longer kept", second.ResourceVersion(t))
			}
			// From there on, the list is consistent again.
			kit.Equal(t, third.Names(t), []string{"d"})
			kit.Equal(t, third.ResourceVersion(t), second.ResourceVersion(t))
			kit.Equal(t, c.NextPage(t, path+"?", expired).Names(t), []string{"c", "d"})
		}},
		kit.Promise{Statement: "a token with another encoding of its position continues from the same position", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "secrets")
			for _, name := range []string{"a", "b"} {
				c.Post(t, path, kit.Secret(name)).Created(t)
			}
			for start, names := range map[string][]string{"b": {"b"}, "/b": {"b"}, "a\x00": {"b"}, "/a\x00": {"b"}, "/": {"a", "b"}, "b\x00": {}, "c": {}} {
				query := path + "?continue=" + continueToken(1, start)
				outlive(t, c, query)
				expired := c.Get(t, query).Refused(t, http.StatusGone, "Expired")
				if start != "/" {
					kit.Equal(t, c.NextPage(t, path+"?", expired).Names(t), names)
				}
			}
		}},
		kit.Promise{Statement: "current objects are never compacted", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "secrets")
			old := c.Post(t, path, kit.Secret("a")).Created(t)
			outlive(t, c, path+"?resourceVersionMatch=Exact&resourceVersion="+old.ResourceVersion(t))
			var again kit.Answer
			harness.Eventually(t, "a list's revision can be listed, soon enough", func() bool {
				list := c.Get(t, path).OK(t)
				again = c.Get(t, path+"?resourceVersionMatch=Exact&resourceVersion="+list.ResourceVersion(t)).Want(t, http.StatusOK, http.StatusGone)
				return again.Code == http.StatusOK
			})
			kit.Equal(t, again.Names(t), []string{"a"})
			kit.Equal(t, c.Get(t, path+"/a").ResourceVersion(t), old.ResourceVersion(t))
		}},
	)
}

// outlive waits until the revision in the path is no longer kept. It writes, since the newest revision is always kept.
func outlive(t testing.TB, c *kit.Cluster, path string) {
	t.Helper()
	written := 0
	harness.Eventually(t, "410 for "+path, func() bool {
		written++
		annotations := map[string]any{"written": fmt.Sprint(written)}
		c.Patch(t, kit.MergePatch, c.ClusterPath("v1", "namespaces", c.Namespace), map[string]any{"metadata": map[string]any{"annotations": annotations}}).OK(t)
		return c.Get(t, path).Code == http.StatusGone
	})
}
