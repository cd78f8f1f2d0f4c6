package concepts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestExpiredWatch is of watches from what is forgotten, which happens soon here. (kube-apiserver has forgotten what was
// before its start.)
func TestExpiredWatch(t *testing.T) {
	prove(t, []string{"--retention=1s"},
		promise{"a watch from a forgotten revision is answered with 200, and 410 in its only event", func(t *testing.T, c *cluster) {
			// The documents speak of a status code; kube-apiserver has always sent the event.
			c.forgotten(t)
			groupVersion := c.widgets(t, anySchema)
			for _, path := range []string{
				c.path("v1", "configmaps") + "?watch=1&", c.global("v1", "configmaps") + "?watch=1&",
				c.path("v1", "configmaps") + "?watch=1&allowWatchBookmarks=true&",
				c.path("v1", "configmaps") + "?watch=1&labelSelector=l=x&", "/api/v1/watch/configmaps?",
				c.path(groupVersion, "widgets") + "?watch=1&",
			} {
				s := c.watch(t, path+"resourceVersion=1")
				e := s.next(t)
				message, _ := e.Object["message"].(string)
				equal(t, []any{e.Type, e.Object["kind"], e.Object["code"], e.Object["reason"], e.Object["status"]},
					[]any{"ERROR", "Status", 410.0, "Expired", "Failure"})
				if !strings.HasPrefix(message, "too old resource version: 1 (") {
					t.Errorf("the message is %q", message)
				}
				s.end(t)
			}
		}},
		promise{"410 comes in the media type of the watch, and as itself where Tables are asked for", func(t *testing.T, c *cluster) {
			c.forgotten(t)
			for _, accept := range []string{
				runtime.ContentTypeJSON, protobufType, cborType, asTable(runtime.ContentTypeJSON, "v1"),
				asMetadata(cborType, "v1"),
			} {
				events := c.getAs(t, accept, c.path("v1", "configmaps")+"?watch=1&resourceVersion=1").want(t, http.StatusOK).
					events(t)
				equal(t, []any{len(events), events[0].Type, events[0].Object["kind"], events[0].Object["code"]},
					[]any{1, "ERROR", "Status", 410.0})
			}
		}},
		promise{"a client that got 410 lists, and watches from there", func(t *testing.T, c *cluster) {
			c.forgotten(t)
			list := c.get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
			c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
			c.watch(t, c.path("v1", "configmaps")+"?watch=1&"+notRoot+"&resourceVersion="+list.version(t)).seen(t, "ADDED a")
		}},
		promise{"a running watch goes on, however much is forgotten behind it", func(t *testing.T, c *cluster) {
			path := c.path("v1", "configmaps")
			start := c.get(t, path).version(t)
			s := c.watch(t, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+start)
			c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
			s.seen(t, "ADDED a")
			c.forgotten(t)
			c.delete(t, path+"/a").want(t, http.StatusOK)
			s.seen(t, "DELETED a")
		}},
	)
}

// forgotten makes changes until the first revision is.
func (c *cluster) forgotten(t *testing.T) {
	t.Helper()
	i := 0
	eventually(t, "the first revision is forgotten", func() bool {
		c.post(t, c.path("v1", "configmaps"), configMap(fmt.Sprint("change", i), nil)).want(t, http.StatusCreated)
		c.delete(t, c.path("v1", "configmaps", fmt.Sprint("change", i))).want(t, http.StatusOK)
		i++
		events := c.get(t, c.path("v1", "secrets")+"?watch=1&timeoutSeconds=1&resourceVersion=1").want(t, http.StatusOK).
			events(t)
		return len(events) == 1 && events[0].Type == "ERROR"
	})
}
