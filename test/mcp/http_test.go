package mcp

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestServedAgents has agents use a server at /mcp, each with the rights of its user.
func TestServedAgents(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	harness.Must(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600))
	c := start(t, "--mcp", "--mcp-allow-apply", "shop", "--audit-policy-file", policy, "--audit-log-path", log)
	ctx := t.Context()
	_, err := c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "agents"},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/mcp"}, Verbs: []string{"get", "post", "delete"}}}}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agents"},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "agents"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}, {Kind: "User", Name: "joe"}}}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.RbacV1().RoleBindings("shop").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "jane"},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}}}, metav1.CreateOptions{})
	harness.Must(t, err)

	p := &person{answer: accept}
	jane := c.served(t, c.user(t, "jane"), p)
	harness.Eventually(t, "jane may read in shop", func() bool {
		_, result := jane.call("objects", arguments{"resource": "cm", "namespace": "shop"})
		return !result.IsError
	})
	jane.shows("objects", arguments{"resource": "cm", "namespace": "shop"}, "notes")
	jane.shows("objects", arguments{"resource": "secret", "name": "door", "namespace": "shop"}, "code: (12 bytes)")
	jane.fails("objects", arguments{"resource": "secrets", "namespace": "bank"}, "forbidden")
	joe := c.served(t, c.user(t, "joe"), p)
	joe.fails("objects", arguments{"resource": "cm", "namespace": "shop"}, `User "joe" cannot list resource`)
	blue := configMap("shop", "blue")
	admin := c.served(t, c.Config(t), p)
	trial := admin.try(arguments{"manifest": blue})
	jane.fails("apply", arguments{"trial": trial, "manifest": blue}, "no such trial")
	if name := jane.try(arguments{"manifest": blue}); name == "" {
		t.Error("jane can't try what she may do")
	}
	jane.fails("try", arguments{"manifest": configMap("bank", "blue")}, "forbidden")
	admin.shows("apply", arguments{"trial": trial, "manifest": blue}, "Applied")
	if color := c.color(t, "shop"); color != "blue" || len(p.asked) != 1 || !strings.Contains(p.asked[0], "as kubernetes-admin") {
		t.Errorf("the cluster has %q, and the person was asked %q", color, p.asked)
	}
	admin.shows("changes", arguments{"namespace": "shop", "manager": "sqube-mcp"}, "configmap/paint", "kubernetes-admin")

	// A session is its user's alone.
	client, err := rest.HTTPClientFor(c.user(t, "joe"))
	harness.Must(t, err)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/mcp", bytes.NewBufferString(`{"jsonrpc":"2.0","id":9,"method":"tools/list"}`))
	harness.Must(t, err)
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {jane.ID()}, "Mcp-Protocol-Version": {"2025-06-18"}}
	if code, body := harness.Do(t, client, request); code != http.StatusForbidden && code != http.StatusNotFound {
		t.Errorf("joe uses jane's session: %d %s", code, body)
	}
	stranger := mcp.NewClient(&mcp.Implementation{Name: "robot", Version: "7"}, nil)
	if _, err := stranger.Connect(ctx, c.transport(t, c.user(t, "stranger")), nil); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("a user without the right to use /mcp gets: %v", err)
	}
	harness.Eventually(t, "the audit log names tools", func() bool {
		text, err := os.ReadFile(log)
		harness.Must(t, err)
		return strings.Contains(string(text), `"history.sqube.io/mcp-tool":"apply"`) && strings.Contains(string(text), "sqube-mcp/")
	})
	c.Stop(t) // agents that stay connected do not hold it up
}

// user returns the configuration of a user.
func (c *cluster) user(t *testing.T, name string) *rest.Config {
	t.Helper()
	text, stderr, code := sqube.Run(t, []string{"kubeconfig", "--user", name, "--data-dir", filepath.Dir(c.Kubeconfig)})
	if code != 0 {
		t.Fatal(stderr)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	harness.Must(t, err)
	return config
}

func (c *cluster) transport(t *testing.T, config *rest.Config) *mcp.StreamableClientTransport {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	harness.Must(t, err)
	return &mcp.StreamableClientTransport{Endpoint: c.URL + "/mcp", HTTPClient: client}
}

// served returns an agent that uses the server with a configuration.
func (c *cluster) served(t *testing.T, config *rest.Config, p *person) *agent {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "robot", Version: "7"}, &mcp.ClientOptions{ElicitationHandler: p.elicit})
	session, err := client.Connect(t.Context(), c.transport(t, config), nil)
	harness.Must(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return &agent{session, t}
}
