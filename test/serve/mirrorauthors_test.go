package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestMirrorAuthors follows a cluster whose audit log, as a file and then as a webhook, says who has changed what.
func TestMirrorAuthors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	policy := file("policy.yaml", `apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata, namespaces: [little]}, {level: RequestResponse, namespaces: [whole]}, {level: None}]`)
	log := filepath.Join(dir, "audit.log")
	m := &mirrored{source: serve(t, []string{"--audit-policy-file", policy, "--audit-log-path", log})}
	m.there = client(t, m.source.Kubeconfig)
	for _, namespace := range []string{"silent", "little", "whole"} {
		makeNamespace(t, m.there, namespace)
	}
	m.mirror = sqube.Start(t, sqube.Options{Command: "mirror", Args: []string{"--kubeconfig", m.source.Kubeconfig, "--cluster-audit-log", log, "--cluster-audit-webhook"}})
	m.here = client(t, m.mirror.Kubeconfig)
	m.put(t, "silent", "begun", "a")
	m.shows(t, "silent", "begun", "a")
	m.authors(t, "file")

	// Only now there is somebody to send events to.
	_, err := m.there.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "auditor"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/mirror/audit"}, Verbs: []string{"post"}}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = m.there.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "auditor"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "auditor"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "auditor"}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	for user, answer := range map[string]string{"auditor": "", "somebody": "forbidden"} {
		harness.Retry(t, user+" is known", func() error {
			text, err := kubectl(t, (&undone{kubeconfig: m.mirror.Kubeconfig}).as(t, user), "{}", "create", "--raw", "/mirror/audit", "-f", "-")
			if (err == nil) != (answer == "") || !strings.Contains(strings.ToLower(text), answer) {
				return fmt.Errorf("%s: %w", text, err)
			}
			return nil
		})
	}
	auditor, err := os.ReadFile((&undone{kubeconfig: m.mirror.Kubeconfig}).as(t, "auditor"))
	harness.Must(t, err)
	to := file("webhook.kubeconfig", strings.ReplaceAll(string(auditor), m.mirror.URL, m.mirror.URL+"/mirror/audit"))
	m.source.Stop(t)
	m.source = serveAgain(t, m.source, []string{"--audit-policy-file", policy, "--audit-webhook-config-file", to, "--audit-webhook-batch-max-wait", "100ms"})
	m.there = client(t, m.source.Kubeconfig)
	m.authors(t, "webhook")
}

// authors makes changes as different users.
func (m *mirrored) authors(t *testing.T, name string) {
	t.Helper()
	as := func(user string) string {
		return (&undone{kubeconfig: m.source.Kubeconfig}).as(t, user, "system:masters")
	}
	alice, bob := as("alice"), as("bob")
	for _, namespace := range []string{"little", "whole", "silent"} {
		kubectlPrints(t, alice, "create", "configmap", name, "--from-literal", "a=b", "-n", namespace)
		kubectlPrints(t, bob, "label", "configmap", name, "a=b", "-n", namespace)
		kubectlPrints(t, alice, "annotate", "configmap", name, "a=b", "-n", namespace, "--as", "carol", "--as-group", "system:masters")
		kubectlPrints(t, bob, "delete", "configmap", name, "-n", namespace)
		want := []string{"create alice  kubectl-create", "update bob  kubectl-label", "update alice carol kubectl-annotate", "delete bob  kubectl"}
		if namespace == "silent" {
			want = []string{"create   kubectl-create", "update   kubectl-label", "update   kubectl-annotate", "delete   "}
		}
		harness.Retry(t, "history knows who has changed what in "+namespace, func() error {
			var got []string
			for _, c := range m.changes(t, m.mirror.Kubeconfig, namespace) {
				if c.Object.Name != name {
					continue
				}
				got = append(got, authorOf(&c))
				if audited := namespace != "silent"; (c.AuditID != "") != audited || (c.Address != "") != audited || c.SourceRevision == "" {
					return fmt.Errorf("there is a change %s with audit id %q, address %q and resourceVersion %q", authorOf(&c), c.AuditID, c.Address, c.SourceRevision)
				}
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("it has %q", got)
			}
			return nil
		})
	}
}

func authorOf(c *changes.Change) string {
	return fmt.Sprintf("%s %s %s %s", c.Operation, c.User, c.ImpersonatedUser, c.FieldManager)
}
