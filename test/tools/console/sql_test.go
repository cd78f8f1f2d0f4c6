package console

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestSQL asks in SQL, as an administrator; others do not see where.
func TestSQL(t *testing.T) {
	newNamespace(t, "sql")
	newConfigMap(t, "jane", "sql", "asked", `<img src=x onerror="throw 'markup'">`)
	p := signedIn(t, admin)
	p.click("nav a", "SQL")
	p.sees("Ask for anything that is stored")
	write := func(sql string) {
		t.Helper()
		p.keys("/")
		p.until("document.activeElement.matches('textarea')")
		eval[any](p, "document.activeElement.value = "+quote(sql))
	}
	run := func() {
		t.Helper()
		must(t, chromedp.Do(p.ctx, chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(2)))) // Ctrl
	}
	const sql = "SELECT name, user_name, value, 42 AS answer, NULL AS absent FROM objects WHERE namespace = 'sql' AND name = 'asked'"
	write(sql)
	run()
	p.sees("answer", "absent", "jane", "42", " ms")
	if q := eval[string](p, "new URLSearchParams(location.hash.split('?')[1]).get('q')"); q != sql {
		t.Errorf("the link has %q", q)
	}
	p.click(".row", "asked")
	p.sees(`"kind": "ConfigMap"`, `<img src=x onerror=`)
	p.keys(kb.Escape)

	write("SELECT absent FROM objects")
	run()
	p.sees("The database does not accept this", "no such column: absent")
	write("DELETE FROM log")
	run()
	p.sees("the statement may be one SELECT")
	write("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
	run()
	p.sees("cut, there are more than 1000 rows")
	write("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
	run()
	p.click("button", "Stop")
	p.sees("Stopped")
	for _, example := range []string{"Latest changes", "Who writes", "Largest objects", "Most often changed", "Kinds"} {
		p.click("button", example)
		p.until("!document.querySelector('.ask-foot .muted').textContent.includes('Running') && document.querySelector('.row') && !document.querySelector('.failure')")
	}
	must(t, chromedp.Do(p.ctx, chromedp.NavigateBack()))
	p.until("document.querySelector('textarea').value.includes('Most often') || document.querySelector('textarea').value.includes('versions')")

	token, err := tokenFor("sql", "looker", &rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, true)
	must(t, err)
	viewer := signedIn(t, token)
	viewer.sees("Changes")
	viewer.misses("SQL")
	viewer.open("#/sql?q=SELECT")
	viewer.sees("Administrators only may read everything that is stored.")
}
