package serve

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// hostile abuses a terminal: it clears it, sets its title, switches to red, and reverses the direction.
const hostile = "\x1b[2J\x1b]0;title\x07\u009b31m\r\t\x7f\u202e"

// TestTerminal checks that every command that prints data escapes what a terminal would act on.
func TestTerminal(t *testing.T) {
	t.Parallel()
	source := filled(t)
	text, err := json.Marshal(hostile)
	harness.Must(t, err)
	engine := harness.Engine{Name: "sqlite", Datastore: harness.SQLite(t)}
	database := []string{"--datastore", engine.Datastore}
	succeeds(t, append([]string{"restore", source}, database...))
	quoted := "'" + strings.ReplaceAll(hostile, "'", "''") + "'"
	damages(t, engine, "UPDATE log SET user_name = "+quoted+", field_manager = "+quoted+` WHERE resource = 'configmaps' AND name = 'kept'`)
	damages(t, engine, `UPDATE log SET value = '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":`+string(text)+`},"data":{"value":`+string(text)+`}}' WHERE resource = 'configmaps' AND name = 'kept'`)

	plain := func(want int, shown string, args ...string) string {
		t.Helper()
		stdout, stderr, code := sqube.Run(t, append(args, database...))
		if code != want || !strings.Contains(stdout+stderr, shown) {
			t.Errorf("sqube %s ended with code %d, without %s in\n%q", args[0], code, shown, stdout+stderr)
		}
		if hidden := func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }; strings.ContainsFunc(stdout+stderr, hidden) {
			t.Errorf("sqube %s wrote %q", args[0], stdout+stderr)
		}
		return stdout
	}
	plain(0, `\x1b[2J\x1b]0;title\a\u009b31m\r\t\x7f\u202e`, "history", "configmaps", "kept")
	plain(0, `\u001b[2J`, "history", "configmaps", "kept", "-o", "json")
	plain(1, `\x1b[2J`, "check")
	plain(1, `\x1b[2J`, "show", "configmaps", hostile)
	plain(1, `\x1b[2J`, "history", hostile, "kept")
	var object struct{ Data map[string]string }
	harness.Must(t, yaml.Unmarshal([]byte(plain(0, "", "show", "configmaps", "kept")), &object))
	if object.Data["value"] != hostile {
		t.Errorf("the data is shown as %q", object.Data)
	}

	kine := filepath.Join(t.TempDir(), "kine.db")
	db := harness.OpenDatabase(t, harness.Engine{Name: "sqlite", Datastore: "sqlite://" + kine})
	_, err = db.Exec("CREATE TABLE kine (id INTEGER PRIMARY KEY, name TEXT, deleted INTEGER, lease INTEGER, value BLOB)")
	harness.Must(t, err)
	_, err = db.Exec("INSERT INTO kine VALUES (1, '/registry/configmaps/default/' || $1, 0, 0, $1), (2, '/registry/' || $1 || '/x', 0, 0, $1)", hostile)
	harness.Must(t, err)
	database = nil
	plain(0, `\x1b[2J`, "import", "--from", "kine-sqlite", kine, "--dry-run", "--data-dir", t.TempDir())
}
