package serve

import (
	"regexp"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestCheck checks a database that is being served, damages it, and checks that the damage is found and repaired.
func TestCheck(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		database := []string{"--datastore", engine.Datastore}
		s := serve(t, database)
		c := client(t, s.Kubeconfig)
		for _, value := range []string{"one", "two", "three"} {
			setData(t, c, "seen", value)
		}
		for _, name := range []string{"broken", "strayed", "relabeled"} {
			setData(t, c, name, "one")
		}
		check := append([]string{"check"}, database...)
		sound := regexp.MustCompile(`: \d+ rows of \d+ objects, nothing wrong\n$`)
		if text := succeeds(t, check); !sound.MatchString(text) {
			t.Fatalf("while it is served: %s", text)
		}
		refuses(t, "in use by another sqube", append(check, "--repair"))
		s.Stop(t)

		for _, damage := range []string{
			// Repairable: the counter, and replaced versions that are not marked as such.
			"UPDATE counter SET revision = 100, compacted = 1",
			"UPDATE log SET replaced_by = 100000 WHERE id = (SELECT min(id) FROM log WHERE resource = 'configmaps' AND name = 'seen')",
			// Not repairable.
			`UPDATE log SET value = '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"other"}}' WHERE resource = 'configmaps' AND name = 'broken'`,
			`UPDATE log SET value = '{' WHERE resource = 'services' AND name = 'kubernetes'`,
			"UPDATE log SET namespace = 'nowhere', key = 'nowhere/strayed' WHERE resource = 'configmaps' AND name = 'strayed'",
			`UPDATE log SET labels = '{"a":"b"}' WHERE resource = 'configmaps' AND name = 'relabeled'`,
		} {
			damages(t, engine, damage)
		}
		stdout, stderr, code := sqube.Run(t, check)
		if code != 1 || !strings.Contains(stderr, "something is wrong: ") {
			t.Errorf("the check of a damaged database exits with code %d and %q", code, stderr)
		}
		for _, form := range []string{
			`the counter is at 100, behind the newest row, 100000 \(--repair can fix it\)`,
			`\d+ +configmaps default/seen +it counts as live until 100000, but was followed by \d+ \(--repair can fix it\)`,
			`configmaps default/broken +its value is that of /other with uid `,
			`services default/kubernetes +its value is not an object: `,
			`configmaps nowhere/strayed +there is no namespace nowhere`,
			`configmaps nowhere/strayed +its value is that of default/strayed with uid `,
			`configmaps default/relabeled +its labels are stored as {"a":"b"}`,
		} {
			if !regexp.MustCompile(form).MatchString(stdout) {
				t.Errorf("no %s in\n%s", form, stdout)
			}
		}
		// On SQLite, a counter that has gone back is taken for an older state, and jumps ahead before the check begins.
		stdout, stderr, _ = sqube.Run(t, append(check, "--repair"))
		if n := strings.Count(stdout, ": fixed") + strings.Count(stderr, "resourceVersions jump ahead"); n != 2 {
			t.Errorf("%d findings were fixed:\n%s%s", n, stdout, stderr)
		}
		stdout, _, _ = sqube.Run(t, check)
		if strings.Contains(stdout, "--repair") || !strings.Contains(stdout, "nowhere") {
			t.Errorf("after the repair:\n%s", stdout)
		}
	})
}

// damages runs a statement on a database that no server uses.
func damages(t *testing.T, engine harness.Engine, statement string) {
	t.Helper()
	db := harness.OpenDatabase(t, engine)
	result, err := db.Exec(statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s: %d rows, %v", statement, n, err)
	}
}
