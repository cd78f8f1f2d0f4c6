package aggregation

import (
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestControllersBesideAggregatedAPIs counts quotas, collects garbage and deletes a namespace while there are aggregated APIs: one without
// aggregated discovery, and others whose watches send nothing, not even the bookmark that ends a streaming list. In kube-apiserver's
// cluster, the latter stop quotas.
func TestControllersBesideAggregatedAPIs(t *testing.T) {
	kit.OnSQLite(t, func(t *testing.T, engine harness.Engine) {
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		c := kit.NewCluster(t, server.Config(t), server, 0)
		register := func(number int, hangs bool) {
			home := kit.NewCluster(t, server.Config(t), server, number)
			r := kit.StartAggregatedServer(t, home, "127.0.0.1")
			for path, body := range r.Answers { // controllers watch what has all verbs
				r.Answers[path] = strings.ReplaceAll(body, `["create","get","list"]`, `["create","delete","deletecollection","get","list","watch"]`)
			}
			if r.Hangs = hangs; !hangs {
				delete(r.Answers, "/apis")
			}
			r.Register(t, home)
			harness.Eventually(t, "its objects are watched", func() bool { return slices.Contains(r.Requests(), "GET /apis/"+r.Group+"/v1/widgets") })
		}
		register(1, false)
		register(2, true)
		quota := c.Path("v1", "resourcequotas", "q")
		c.Post(t, c.Path("v1", "resourcequotas"), kit.Manifest(`{metadata: {name: q}, spec: {hard: {count/secrets: "9"}}}`)).Created(t)
		used := func(want string) {
			t.Helper()
			harness.Eventually(t, "the quota has counted "+want, func() bool { return c.Get(t, quota).Text(t, "status", "used", "count/secrets") == want })
		}
		used("0")
		c.Post(t, c.Path("v1", "secrets"), kit.Manifest("{metadata: {name: a}}")).Created(t)
		c.Post(t, c.Path("v1", "secrets"), kit.Manifest("{metadata: {name: b}}")).Created(t)
		c.Delete(t, c.Path("v1", "secrets", "a")).OK(t)
		used("1")
		register(3, true)
		c.Delete(t, c.Path("v1", "secrets", "b")).OK(t)
		used("0")

		owner := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("owner", nil)).Created(t)
		owned := kit.Manifest("{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}", owner.Text(t, "metadata", "uid"))
		c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap("owned", nil), []any{owned}, "metadata", "ownerReferences")).Created(t)
		c.Delete(t, c.Path("v1", "configmaps", "owner")).OK(t)
		c.WaitGone(t, c.Path("v1", "configmaps", "owned"))
		c.Delete(t, "/api/v1/namespaces/"+c.Namespace).OK(t)
		c.WaitGone(t, "/api/v1/namespaces/"+c.Namespace)
	})
}
