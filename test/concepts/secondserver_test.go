package concepts

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

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestAggregatedServer has a whole API server as the server of an aggregated API: a second sqube, in which a custom resource
// is defined, and which takes the first one's word for who a user is.
func TestAggregatedServer(t *testing.T) {
	prove(t, nil,
		promise{"kubectl and controllers work with an aggregated API as with any other", func(t *testing.T, c *cluster) {
			version, second := secondServer(t, c)
			group := strings.TrimSuffix(version, "/v1")
			eventually(t, "the widgets are discovered", func() bool { return freshness(t, c, group) == "Current" })
			waitOpenAPI(t, c, &remote{group: group}, "")

			says := func(want string, args ...string) {
				t.Helper()
				if output, ok := c.kubectl(t, string(asYAML(widget(version, "a"))), args...); !ok || !strings.Contains(output, want) {
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

			path := c.path(version, "widgets", "a")
			a := second.get(t, path).want(t, http.StatusOK)
			equal(t, a.object(t), c.get(t, path).want(t, http.StatusOK).object(t))

			// An object of this server whose owner is one of the other's.
			owner := manifest("{apiVersion: %s, kind: Widget, name: a, uid: %s}", version, a.text(t, "metadata", "uid"))
			c.post(t, c.path("v1", "configmaps"), with(configMap("owned", nil), []any{owner}, "metadata", "ownerReferences")).want(t, http.StatusCreated)
			says("widget."+group+` "a" deleted`, "delete", "widget", "a")
			c.gone(t, c.path("v1", "configmaps", "owned"))

			doomed := manifest("{metadata: {name: %s-doomed}}", c.namespace)
			c.post(t, "/api/v1/namespaces", doomed).want(t, http.StatusCreated)
			second.post(t, "/api/v1/namespaces", doomed).want(t, http.StatusCreated)
			widgets := c.global(version, "namespaces", c.namespace+"-doomed", "widgets")
			c.post(t, widgets, widget(version, "b")).want(t, http.StatusCreated)
			c.delete(t, "/api/v1/namespaces/"+c.namespace+"-doomed").want(t, http.StatusOK)
			c.gone(t, "/api/v1/namespaces/"+c.namespace+"-doomed")
			second.get(t, widgets+"/b").want(t, http.StatusNotFound)
		}},
		promise{"the server of an aggregated API decides itself what a user may, too", func(t *testing.T, c *cluster) {
			version, second := secondServer(t, c)
			group := strings.TrimSuffix(version, "/v1")
			role := manifest("{metadata: {name: %s}, rules: [{apiGroups: [%s], resources: [widgets], verbs: [list]}]}", c.namespace, group)
			binding := manifest("{metadata: {name: %[1]s}, subjects: [{kind: Group, name: %[1]s}], roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}}", c.namespace)
			jane := c.as(t, "jane", c.namespace)
			allow := func(on *client) {
				on.post(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).want(t, http.StatusCreated)
				on.post(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).want(t, http.StatusCreated)
			}
			allow(c.client)
			eventually(t, "the first server lets jane pass, the second refuses her", func() bool {
				answer := jane.get(t, c.path(version, "widgets")).want(t, http.StatusForbidden)
				return len(answer.Header.Values("X-Kubernetes-Pf-Flowschema-Uid")) == 2 // each server that takes a request in adds one
			})
			allow(second)
			eventually(t, "the second server lets jane list", func() bool { return jane.get(t, c.path(version, "widgets")).Code == http.StatusOK })
		}},
	)
}

// secondServer starts a sqube with a custom resource, of the promise's group, and makes the first server pass requests for
// it on. It returns the group and version, and the second server's administrator.
func secondServer(t *testing.T, c *cluster) (version string, second *client) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("widgets."+c.namespace+".svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: []string{
		"--requestheader-client-ca-file", write("front-proxy-ca.crt", []byte(authentication(t, c).text(t, "data", "requestheader-client-ca-file"))),
		"--tls-cert-file", write("tls.crt", certificate), "--tls-private-key-file", write("tls.key", key),
	}})
	second = newClient(t, server.Config(t))
	behind := &cluster{client: second, namespace: c.namespace}
	second.post(t, "/api/v1/namespaces", manifest("{metadata: {name: %s}}", c.namespace)).want(t, http.StatusCreated)
	version = behind.widgets(t, "{type: object, properties: {spec: {type: object, description: what it is to be, x-kubernetes-preserve-unknown-fields: true}}}")

	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	group := strings.TrimSuffix(version, "/v1")
	serviceTo(t, c)
	registerAPIService(t, c, apiService(c, group, port, certificate))
	waitAvailable(t, c, "v1."+group, "True", "Passed")
	return version, second
}
