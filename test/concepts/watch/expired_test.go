package watch

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// TestExpiredWatch tests watches from compacted revisions, with a short retention. (kube-apiserver has no revisions from before
// its start.)
func TestExpiredWatch(t *testing.T) {
	kit.ProveOnEngines(t, []string{"--retention=1s"},
		kit.Promise{Statement: "a watch from a compacted revision gets 200, and 410 in its only event", Proof: func(t *testing.T, c *kit.Cluster) {
			// The documentation describes a status code; kube-apiserver has always sent the event.
			compacted(t, c)
			groupVersion := c.DefineWidgets(t, kit.AnySchema)
			for _, path := range []string{
				c.Path("v1", "configmaps") + "?watch=1&", c.ClusterPath("v1", "configmaps") + "?watch=1&",
				c.Path("v1", "configmaps") + "?watch=1&allowWatchBookmarks=true&",
				c.Path("v1", "configmaps") + "?watch=1&labelSelector=l=x&", "/api/v1/watch/configmaps?",
				c.Path(groupVersion, "widgets") + "?watch=1&",
			} {
				s := c.Watch(t, path+"resourceVersion=1")
				e := s.Next(t)
				message, _ := e.Object["message"].(string)
				kit.Equal(t, []any{e.Type, e.Object["kind"], e.Object["code"], e.Object["reason"], e.Object["status"]},
					[]any{"ERROR", "Status", 410.0, "Expired", "Failure"})
				if !strings.HasPrefix(message, "too old resource version: 1 (") {
					t.Errorf("the message is %q", message)
				}
				s.End(t)
			}
		}},
		kit.Promise{Statement: "410 is sent in the media type of the watch, and as a Status if Tables are requested", Proof: func(t *testing.T, c *kit.Cluster) {
			compacted(t, c)
			for _, accept := range []string{
				runtime.ContentTypeJSON, kit.Protobuf, kit.CBOR, kit.AsTable(runtime.ContentTypeJSON, "v1"),
				kit.AsMetadata(kit.CBOR, "v1"),
			} {
				events := c.GetAs(t, accept, c.Path("v1", "configmaps")+"?watch=1&resourceVersion=1").OK(t).
					Events(t)
				kit.Equal(t, []any{len(events), events[0].Type, events[0].Object["kind"], events[0].Object["code"]},
					[]any{1, "ERROR", "Status", 410.0})
			}
		}},
		kit.Promise{Statement: "a client that got 410 lists, and watches from there", Proof: func(t *testing.T, c *kit.Cluster) {
			compacted(t, c)
			path, i := c.Path("v1", "configmaps"), 0
			harness.Eventually(t, "the watch begins before the list's revision is compacted, too", func() bool {
				list := c.Get(t, path).OK(t)
				i++
				name := fmt.Sprint("a", i)
				c.Post(t, path, kit.ConfigMap(name, nil)).Created(t)
				s := c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+list.ResourceVersion(t))
				defer s.Stop()
				e := s.Next(t)
				if e.Type == "ERROR" && e.Object["code"] == 410.0 {
					return false
				}
				kit.Equal(t, e.Type+" "+e.Name(), "ADDED "+name)
				return true
			})
		}},
		kit.Promise{Statement: "a running watch continues, however much is compacted", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "configmaps")
			s := c.Watch(t, path+"?watch=1&fieldSelector=metadata.name=a") // a list's revision may be compacted before
			c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
			seen(t, s, "ADDED a")
			compacted(t, c)
			c.Delete(t, path+"/a").OK(t)
			seen(t, s, "DELETED a")
		}},
	)
}

// compacted makes changes until the first revision is compacted.
func compacted(t *testing.T, c *kit.Cluster) {
	t.Helper()
	i := 0
	harness.Eventually(t, "the first revision is compacted", func() bool {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap(fmt.Sprint("change", i), nil)).Created(t)
		c.Delete(t, c.Path("v1", "configmaps", fmt.Sprint("change", i))).OK(t)
		i++
		events := c.Get(t, c.Path("v1", "secrets")+"?watch=1&timeoutSeconds=1&resourceVersion=1").OK(t).
			Events(t)
		return len(events) == 1 && events[0].Type == "ERROR"
	})
}
