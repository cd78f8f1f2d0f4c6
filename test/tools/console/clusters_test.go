package console

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestClusters makes, opens, forks, puts to sleep and deletes clusters as somebody who has rights in one namespace alone.
func TestClusters(t *testing.T) {
	newNamespace(t, "team")
	_, err := as("").RbacV1().Roles("team").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "clusters"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"fleet.sqube.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{"history.sqube.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}}, metav1.CreateOptions{})
	must(t, err)
	token, err := tokenFor("team", "tenant", &rbacv1.RoleRef{Kind: "Role", Name: "clusters"}, false)
	must(t, err)
	p := signedIn(t, token)
	p.open("#/clusters?ns=team")
	p.sees("No clusters")
	p.click("button", "New cluster…")
	p.keys("one")
	p.click("dialog .primary", "Create")
	p.sees("one", "Asleep")
	p.click("a", "Open")
	p.until("location.pathname === '/clusters/team/one/console/' && document.querySelector('.timebar')")
	p.sees("team/one")
	p.open("#/list?r=v1/namespaces")
	p.sees("kube-system")
	p.misses("team\n")

	// A fork of a moment has what was deleted since.
	api := func(method, path, body string) string {
		return eval[string](p, "import(location.pathname + 'api.js').then((api) => api.request("+quote(path)+", {method: "+quote(method)+", body: "+body+"})).then((o) => o.metadata?.resourceVersion ?? '')")
	}
	at := api("POST", "/api/v1/namespaces/default/configmaps", `{"metadata": {"name": "missed"}}`)
	api("DELETE", "/api/v1/namespaces/default/configmaps/missed", "null")
	p.open("#/list?r=v1/configmaps&ns=default&at=" + at)
	p.sees("missed")
	p.click("button[aria-label=Fork]", "")
	p.sees("As at resourceVersion " + at)
	p.click("dialog .primary", "Fork")
	p.until("location.pathname === '/console/'")
	p.sees("Clusters", "one-fork")
	eval[any](p, "location.assign('/clusters/team/one-fork/console/#/list?r=v1/configmaps&ns=default')")
	p.sees("team/one-fork", "missed")
	p.click(".place a", "")
	p.until("location.pathname === '/console/'")

	p.open("#/clusters?ns=team")
	p.click(".row", "one")
	p.click("button", "Sleep")
	p.sees("one sleeps", "phase: Asleep")
	p.click("button", "Delete…")
	p.click("dialog .primary", "Delete")
	p.sees("one is deleted")
	p.click(".toast button", "Undo")
	p.click("dialog .primary:enabled", "Apply")
	p.sees("Done. This undo is in the history too")
	p.click("dialog button", "Close")
	p.click("a[href$='/one/console/']", "Open")
	p.until("location.pathname === '/clusters/team/one/console/'")
	p.sees("team/one")
	p.open("#/trash?ns=default")
	p.sees("missed")
}
