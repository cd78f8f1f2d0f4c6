package console

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shoot writes a picture.
func shoot(t *testing.T, p *page, name string) {
	if os.Getenv("SHOOT") == "" {
		return
	}
	taken, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	must(t, err)
	must(t, os.WriteFile("/tmp/h8/shot-"+name+".png", taken, 0o644))
}

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
	shoot(t, p, "empty")
	p.click("button", "New cluster…")
	p.keys("one")
	shoot(t, p, "new")
	p.click("dialog .primary", "Create")
	p.sees("one", "Asleep")
	shoot(t, p, "list")
	p.click("a", "Open")
	p.until("location.pathname === '/clusters/team/one/console/' && document.querySelector('.timebar')")
	p.sees("team/one")
	p.open("#/list?r=v1/namespaces")
	p.sees("kube-system")
	p.misses("team\n")
	shoot(t, p, "inside")
}
