package serve

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestOtherKeys starts servers with other keys than the database's cluster has.
func TestOtherKeys(t *testing.T) {
	t.Parallel()
	engine := harness.Engine{Datastore: harness.SQLite(t)}
	database := []string{"--datastore", engine.Datastore}
	const refusal = "the database belongs to a cluster with another CA and another service account key, which host "
	dirs := map[string]string{}
	for _, name := range []string{"first", "none", "other"} {
		dirs[name] = filepath.Join(t.TempDir(), "data")
	}
	begins := func(dir string, more ...string) {
		t.Helper()
		serveIn(t, dir, append(more, database...)).Kill(t)
	}
	begins(dirs["first"])
	begins(dirs["first"])

	// Without keys, as after a restore on another machine, nothing is made that would be in the way of the right ones.
	refuses(t, refusal, serveArgs(t, dirs["none"], database...))
	if made, err := os.ReadDir(filepath.Join(dirs["none"], "pki")); err != nil || len(made) > 0 {
		t.Errorf("it made %v, %v", made, err)
	}
	harness.Must(t, os.CopyFS(filepath.Join(dirs["none"], "pki"), os.DirFS(filepath.Join(dirs["first"], "pki"))))
	begins(dirs["none"])

	// The keys of another cluster.
	serveIn(t, dirs["other"], []string{"--datastore", harness.SQLite(t)}).Kill(t)
	refuses(t, filepath.Join(dirs["first"], "pki", "sa.key")+"; here they are "+filepath.Join(dirs["other"], "pki"), serveArgs(t, dirs["other"], database...))
	_, stderr, _ := sqube.Run(t, serveArgs(t, dirs["other"], database...))
	flag := regexp.MustCompile(`--replace-keys=\w+`).FindString(stderr)
	begins(dirs["other"], flag)
	begins(dirs["other"])
	refuses(t, refusal, serveArgs(t, dirs["first"], database...))

	// The database of an older sqube, and the procedure for keys that have leaked.
	for _, pki := range []string{"kept", "emptied"} {
		if _, err := harness.OpenDatabase(t, engine).Exec("delete from log where resource = 'shared_keys'"); err != nil {
			t.Fatal(err)
		}
		if pki == "emptied" {
			harness.Must(t, os.RemoveAll(filepath.Join(dirs["first"], "pki")))
		}
		begins(dirs["first"])
		refuses(t, refusal, serveArgs(t, dirs["other"], database...))
	}
}
