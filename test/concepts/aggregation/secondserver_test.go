package aggregation

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// A whole API server is the server of an aggregated API: a second sqube with a custom resource, which
// trusts the first one's authentication.
var secondServers = []kit.Promise{
	{Statement: "kubectl, watches and the controllers of garbage and namespaces work with an aggregated API as with any other", Proof: func(t *testing.T, c *kit.Cluster) {
		version, second := secondServer(t, c)
		group := strings.TrimSuffix(version, "/v1")
		harness.Eventually(t, "the widgets are discovered", func() bool { return freshness(t, c, group) == "Current" })
		waitOpenAPI(t, c, &kit.AggregatedServer{Group: group}, "")

		widget := "widget." + group // other promises have widgets, too
		says := func(want string, args ...string) {
			t.Helper()
			if output, ok := c.Kubectl(t, string(kit.JSON(kit.Widget(version, "a"))), args...); !ok || !strings.Contains(output, want) {
				t.Errorf("kubectl %s: %s", strings.Join(args, " "), output)
			}
		}
		says("widgets", "api-resources", "--api-group", group)
		says(version, "api-versions")
		says("what it is to be", "explain", "widgets.spec", "--api-version", version)
		says(widget+"/a serverside-applied", "apply", "--server-side", "-f", "-")
		says(widget+"/a patched", "patch", widget, "a", "--type", "merge", "-p", `{"spec":{"color":"red"}}`)
		says("NAME   AGE", "get", widget)
		says("red", "get", widget, "a", "-o", "jsonpath={.spec.color}")
		says(widget+"/a labeled", "label", widget, "a", "b=c")

		path := c.Path(version, "widgets", "a")
		a := second.Get(t, path).OK(t)
		kit.Equal(t, a.Object(t), c.Get(t, path).OK(t).Object(t))

		watch := c.Watch(t, c.Path(version, "widgets")+"?watch=true&resourceVersion="+a.ResourceVersion(t))
		for _, name := range []string{"w1", "w2"} {
			c.Post(t, c.Path(version, "widgets"), kit.Widget(version, name)).Created(t)
			kit.Equal(t, watch.Next(t).Name(), name)
		}

		// Owners on the other server.
		owner := kit.Manifest("{apiVersion: %s, kind: Widget, name: a, uid: %s}", version, a.Text(t, "metadata", "uid"))
		c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap("owned", nil), []any{owner}, "metadata", "ownerReferences")).Created(t)
		made := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("owner", nil)).Created(t)
		owner = kit.Manifest("{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}", made.Text(t, "metadata", "uid"))
		c.Patch(t, kit.MergePatch, c.Path(version, "widgets", "w1"), map[string]any{"metadata": map[string]any{"ownerReferences": []any{owner}}}).OK(t)
		c.Delete(t, c.Path("v1", "configmaps", "owner")).OK(t)
		c.WaitGone(t, c.Path(version, "widgets", "w1"))
		says(widget+` "a" deleted`, "delete", widget, "a")
		c.WaitGone(t, c.Path("v1", "configmaps", "owned"))

		doomed := kit.Manifest("{metadata: {name: %s-doomed}}", c.Namespace)
		c.Post(t, "/api/v1/namespaces", doomed).Created(t)
		second.Post(t, "/api/v1/namespaces", doomed).Created(t)
		widgets := c.ClusterPath(version, "namespaces", c.Namespace+"-doomed", "widgets")
		c.Post(t, widgets, kit.Widget(version, "b")).Created(t)
		c.Delete(t, "/api/v1/namespaces/"+c.Namespace+"-doomed").OK(t)
		c.WaitGone(t, "/api/v1/namespaces/"+c.Namespace+"-doomed")
		second.Get(t, widgets+"/b").Want(t, http.StatusNotFound)
	}},
	{Statement: "the server of an aggregated API also authorizes users itself", Proof: func(t *testing.T, c *kit.Cluster) {
		version, second := secondServer(t, c)
		group := strings.TrimSuffix(version, "/v1")
		role := kit.Manifest("{metadata: {name: %s}, rules: [{apiGroups: [%s], resources: [widgets], verbs: [list]}]}", c.Namespace, group)
		binding := kit.Manifest("{metadata: {name: %[1]s}, subjects: [{kind: Group, name: %[1]s}], roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}}", c.Namespace)
		jane := c.As(t, "jane", c.Namespace)
		allow := func(on *kit.Client) {
			on.Post(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).Created(t)
			on.Post(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).Created(t)
		}
		allow(c.Client)
		harness.Eventually(t, "the first server allows jane, the second denies her", func() bool {
			answer := jane.Get(t, c.Path(version, "widgets")).Want(t, http.StatusForbidden)
			return len(answer.Header.Values("X-Kubernetes-Pf-Flowschema-Uid")) == 2 // each server that accepts a request adds one
		})
		allow(second)
		harness.Eventually(t, "the second server lets jane list", func() bool { return jane.Get(t, c.Path(version, "widgets")).Code == http.StatusOK })
	}},
}

// secondServer starts a sqube with a custom resource of the promise's group, to which the first server proxies requests. It
// returns the group and version, and a client for the second server's administrator.
func secondServer(t *testing.T, c *kit.Cluster) (version string, second *kit.Client) {
	t.Helper()
	serving := kit.ServingCertificate(t, "widgets."+c.Namespace+".svc")
	server := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: []string{
		"--requestheader-client-ca-file", kit.WriteFile(t, "front-proxy-ca.crt", kit.FrontProxyAuthentication(t, c).Text(t, "data", "requestheader-client-ca-file")),
		"--tls-cert-file", kit.WriteFile(t, "tls.crt", string(serving.Certificate)), "--tls-private-key-file", kit.WriteFile(t, "tls.key", string(serving.Key)),
	}})
	second = kit.NewClient(t, server.Config(t))
	behind := &kit.Cluster{Client: second, Namespace: c.Namespace}
	second.Post(t, "/api/v1/namespaces", kit.Manifest("{metadata: {name: %s}}", c.Namespace)).Created(t)
	version = behind.DefineWidgets(t, "{type: object, properties: {spec: {type: object, description: what it is to be, x-kubernetes-preserve-unknown-fields: true}}}")

	address := kit.Must(url.Parse(server.URL))(t)
	port := kit.Must(strconv.Atoi(address.Port()))(t)
	group := strings.TrimSuffix(version, "/v1")
	kit.MakeServiceTo(t, c)
	kit.RegisterAPIService(t, c, kit.NewAPIService(c, group, port, serving.Certificate))
	kit.WaitAvailable(t, c, "v1."+group, "True", "Passed")
	return version, second
}
