package aggregation

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestAggregatedServer uses a whole API server as the server of an aggregated API: a second sqube with a custom resource, which
// trusts the first one's authentication.
func TestAggregatedServer(t *testing.T) {
	kit.Prove(t, nil,
		kit.Promise{Statement: "kubectl and controllers work with an aggregated API as with any other", Proof: func(t *testing.T, c *kit.Cluster) {
			version, second := secondServer(t, c)
			group := strings.TrimSuffix(version, "/v1")
			harness.Eventually(t, "the widgets are discovered", func() bool { return freshness(t, c, group) == "Current" })
			waitOpenAPI(t, c, &kit.AggregatedServer{Group: group}, "")

			says := func(want string, args ...string) {
				t.Helper()
				if output, ok := c.Kubectl(t, string(kit.JSON(kit.Widget(version, "a"))), args...); !ok || !strings.Contains(output, want) {
					t.Errorf("kubectl %s: %s", strings.Join(args, " "), output)
				}
			}
			says("widgets", "api-resources", "--api-group", group)
			says(version, "api-versions")
			says("what it is to be", "explain", "widgets.spec", "--api-version", version)
			says("widget."+group+"/a serverside-applied", "apply", "--server-side", "-f", "-")
			says("widget."+group+"/a patched", "patch", "widget", "a", "--type", "merge", "-p", `{"spec":{"color":"red"}}`)
			says("NAME   AGE", "get", "widgets")
			says("red", "get", "widget", "a", "-o", "jsonpath={.spec.color}")
			says("widget."+group+"/a labeled", "label", "widget", "a", "b=c")

			path := c.Path(version, "widgets", "a")
			a := second.Get(t, path).OK(t)
			kit.Equal(t, a.Object(t), c.Get(t, path).OK(t).Object(t))

			// An object of this server with an owner on the other.
			owner := kit.Manifest("{apiVersion: %s, kind: Widget, name: a, uid: %s}", version, a.Text(t, "metadata", "uid"))
			c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap("owned", nil), []any{owner}, "metadata", "ownerReferences")).Created(t)
			says("widget."+group+` "a" deleted`, "delete", "widget", "a")
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
		kit.Promise{Statement: "the server of an aggregated API also authorizes users itself", Proof: func(t *testing.T, c *kit.Cluster) {
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
	)
}

// secondServer starts a sqube with a custom resource of the promise's group, to which the first server proxies requests. It
// returns the group and version, and a client for the second server's administrator.
func secondServer(t *testing.T, c *kit.Cluster) (version string, second *kit.Client) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("widgets."+c.Namespace+".svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	harness.Must(t, err)
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		harness.Must(t, os.WriteFile(path, content, 0o600))
		return path
	}
	server := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: []string{
		"--requestheader-client-ca-file", write("front-proxy-ca.crt", []byte(kit.FrontProxyAuthentication(t, c).Text(t, "data", "requestheader-client-ca-file"))),
		"--tls-cert-file", write("tls.crt", certificate), "--tls-private-key-file", write("tls.key", key),
	}})
	second = kit.NewClient(t, server.Config(t))
	behind := &kit.Cluster{Client: second, Namespace: c.Namespace}
	second.Post(t, "/api/v1/namespaces", kit.Manifest("{metadata: {name: %s}}", c.Namespace)).Created(t)
	version = behind.DefineWidgets(t, "{type: object, properties: {spec: {type: object, description: what it is to be, x-kubernetes-preserve-unknown-fields: true}}}")

	address := kit.Must(url.Parse(server.URL))(t)
	port := kit.Must(strconv.Atoi(address.Port()))(t)
	group := strings.TrimSuffix(version, "/v1")
	kit.MakeServiceTo(t, c)
	kit.RegisterAPIService(t, c, kit.NewAPIService(c, group, port, certificate))
	kit.WaitAvailable(t, c, "v1."+group, "True", "Passed")
	return version, second
}
