package serve

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// limited makes a ClusterRole whose users may do everything, within limits, and binds subjects to it.
func limited(t *testing.T, c kubernetes.Interface, name, limits string, subjects ...rbacv1.Subject) {
	t.Helper()
	_, err := c.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"history.sqube.io/write-limits": limits}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// forbidden checks that an error is a 403 that says something.
func forbidden(t *testing.T, what string, err error, says string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want a 403 with %q", what, err, says)
	}
}

// TestWriteLimits bounds users by the annotation of a ClusterRole, who try to get around it.
func TestWriteLimits(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		args := []string{"--datastore", engine.Datastore, "--pki-encryption-key-file", sqube.KeyFile(t)}
		s := serve(t, args)
		f := &undone{s.Kubeconfig, engine.Datastore}
		c := client(t, s.Kubeconfig)
		makeNamespace(t, c, "shop")
		makeValue(t, c, "shop", "config", "good")
		limited(t, c, "agent", `{"resources":["configmaps","deployments.apps"],"confirmWithin":"10m","objectsPerHour":4}`,
			rbacv1.Subject{Kind: "User", Name: "agent"}, rbacv1.Subject{Kind: "Group", Name: "agents"}, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "shop", Name: "agent"})
		limited(t, c, "hourly", `{"objectsPerHour":3}`, rbacv1.Subject{Kind: "User", Name: "hourly"})
		limited(t, c, "broken", `{"objects":3}`, rbacv1.Subject{Kind: "User", Name: "broken"})
		limited(t, c, "self", `{"confirmWithin":"10m","selfConfirm":true}`, rbacv1.Subject{Kind: "User", Name: "self"})
		agent, hourly, self := client(t, f.as(t, "agent")), client(t, f.as(t, "hourly")), client(t, f.as(t, "self"))

		make := func(c kubernetes.Interface, name string) error {
			_, err := c.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}
		harness.Retry(t, "the limits are known", func() error {
			if err := make(agent, "alone"); err == nil || !strings.Contains(err.Error(), "limits what you write") {
				_ = c.CoreV1().ConfigMaps("shop").Delete(t.Context(), "alone", metav1.DeleteOptions{})
				return fmt.Errorf("a write alone: %w", err)
			}
			return nil
		})
		for what, c := range map[string]kubernetes.Interface{"the user": agent, "the group": client(t, f.as(t, "joe", "agents"))} {
			forbidden(t, what, make(c, "alone"), "sqube apply --confirm-within 10m")
		}
		forbidden(t, "a limit that can't be read", make(client(t, f.as(t, "broken")), "alone"), "can't be read")

		tries := map[string]struct {
			spec map[string]any
			says string
		}{
			"without a deadline": {map[string]any{}, "confirmed within 10m"},
			"too late a one":     {map[string]any{"confirmWithin": "11m"}, "confirmed within 10m"},
			"health":             {map[string]any{"confirmWithin": "10m", "unlessHealthy": true}, "unlessHealthy is not allowed"},
		}
		for what, try := range tries {
			try.spec["operations"] = []any{setsValue("shop", "config", "new")}
			_, err := submit(t, agent, "", try.spec)
			forbidden(t, what, err, try.says)
		}
		for what, object := range map[string]map[string]any{
			"a kind that is not listed": {"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": "shop", "name": "web"}},
			"a binding": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"namespace": "shop", "name": "mine"},
				"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}},
			"a secret": {"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "shop", "name": "token"}},
		} {
			_, err := submit(t, agent, "", map[string]any{"confirmWithin": "1m", "operations": []any{operationOf("create", "object", object)}})
			forbidden(t, what, err, "limits what you write")
			_, err = submit(t, self, "", map[string]any{"confirmWithin": "1m", "operations": []any{operationOf("create", "object", object)}})
			if object["kind"] != "Service" {
				forbidden(t, what, err, "could lift it")
			}
		}
		_, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		}, metav1.CreateOptions{})
		harness.Must(t, err)
		config, err := clientcmd.BuildConfigFromFlags("", f.as(t, "agent"))
		harness.Must(t, err)
		config.Impersonate.UserName = "jane"
		impersonated, err := kubernetes.NewForConfig(config)
		harness.Must(t, err)
		forbidden(t, "impersonation", make(impersonated, "alone"), "impersonate")
		_, err = submit(t, impersonated, "", map[string]any{"operations": []any{setsValue("shop", "config", "new")}})
		forbidden(t, "impersonation of a transaction", err, "impersonate")
		forbidden(t, "a collection", self.CoreV1().ConfigMaps("shop").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), "collections")

		_, err = submit(t, agent, "first", map[string]any{"confirmWithin": "10m", "operations": []any{
			setsValue("shop", "config", "new"), operationOf("create", "object", configMap("shop", "one", "new")), operationOf("create", "object", configMap("shop", "two", "new")),
		}})
		harness.Must(t, err)
		forbidden(t, "confirming by oneself", confirm(t, agent, "first"), "somebody else must confirm")
		harness.Must(t, confirm(t, c, "first"))
		_, err = submit(t, agent, "second", map[string]any{"confirmWithin": "10m", "operations": []any{
			setsValue("shop", "config", "newer"), operationOf("create", "object", configMap("shop", "three", "new")),
		}})
		forbidden(t, "the fifth object in an hour", err, "4 writes of objects in an hour")
		if got := valueOf(t, c, "shop", "config") + " " + valueOf(t, c, "shop", "three"); got != "new none" {
			t.Errorf("after a transaction over the limit: %s", got)
		}
		_, err = submit(t, self, "own", map[string]any{"confirmWithin": "10m", "operations": []any{setsValue("shop", "config", "own")}})
		harness.Must(t, err)
		harness.Must(t, confirm(t, self, "own"))

		if engine.Name == "postgres" { // the count is that of all servers
			another := serve(t, args)
			hourly2 := client(t, (&undone{another.Kubeconfig, ""}).as(t, "hourly"))
			harness.Must(t, make(hourly2, "hourly-0"))
		} else {
			harness.Must(t, make(hourly, "hourly-0"))
		}
		harness.Must(t, make(hourly, "hourly-1"))
		harness.Must(t, make(hourly, "hourly-2"))
		forbidden(t, "the fourth object in an hour", make(hourly, "hourly-3"), "3 writes of objects in an hour")
		harness.Must(t, make(c, "anybody")) // others have no limits
	})
}
