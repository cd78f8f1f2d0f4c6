package serve

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestMigrate migrates an empty database to the newest schema, and prints the status before and after.
func TestMigrate(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		status := []string{"migrate", "status", "--datastore", engine.Datastore}
		if engine.Name == "sqlite" {
			refuses(t, "no such file or directory", status)
		} else if got := succeeds(t, status); !strings.Contains(got, " has schema 0 of ") {
			t.Errorf("empty: %s", got)
		} else if got := tables(t, engine); got != 0 {
			t.Errorf("printing the status created %d tables", got)
		}
		up := []string{"migrate", "up", "--datastore", engine.Datastore}
		if got := succeeds(t, up); !strings.HasSuffix(got, ", the newest: it had schema 0\n") {
			t.Errorf("the first migrate up: %q", got)
		}
		want := regexp.MustCompile(`^(sqlite|postgres)://\S+ has schema (\d+) of (\d+), made by sqube \d\S+: up to date\n$`)
		if got := want.FindStringSubmatch(succeeds(t, status)); got == nil || got[2] != got[3] {
			t.Errorf("after migrate up: %q", got)
		}
		if got := succeeds(t, up); !strings.HasSuffix(got, ", the newest: there was nothing to do\n") {
			t.Errorf("the second migrate up: %q", got)
		}

		if _, err := harness.OpenDatabase(t, engine).Exec("UPDATE schema_migrations SET dirty = true"); err != nil {
			t.Fatal(err)
		}
		if got := succeeds(t, status); !strings.Contains(got, "the last step was interrupted: run sqube migrate up") {
			t.Errorf("interrupted: %s", got)
		}
		if got := succeeds(t, up); !regexp.MustCompile(`, the newest: step \d+ had been interrupted\n$`).MatchString(got) {
			t.Errorf("migrate up after an interruption: %q", got)
		}
		s := serve(t, []string{"--datastore", engine.Datastore})
		if got := succeeds(t, status); !strings.Contains(got, ": up to date") {
			t.Errorf("while it is served: %s", got)
		}
		settle(t, s)
		s.Stop(t)
	})
	refuses(t, `unknown command "down" for "sqube migrate"`, []string{"migrate", "down"})
}

// tables counts the tables of a Postgres database.
func tables(t *testing.T, engine harness.Engine) (n int) {
	t.Helper()
	harness.Must(t, harness.OpenDatabase(t, engine).QueryRow("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&n))
	return n
}

// reading returns the commands that read a database without changing it.
func reading(t *testing.T, datastore string) map[string][]string {
	database := []string{"--datastore", datastore}
	return map[string][]string{
		"check":   append([]string{"check"}, database...),
		"history": append([]string{"history", "configmaps", "kept", "-n", "old"}, database...),
		"show":    append([]string{"show", "configmaps", "kept", "-n", "old"}, database...),
		"backup":  append([]string{"backup", filepath.Join(t.TempDir(), "backup")}, database...),
		"restore": {"restore", datastore, "--datastore", harness.SQLite(t)},
	}
}

// TestOlderSchema serves a database of the first schema. All objects are unchanged. Tests of migrations do the steps from each of the
// others.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		newest := len(harness.Schemas(t, engine.Name))
		harness.LaySchema(t, engine, 1)
		backsUpOlder(t, engine)
		commands := reading(t, engine.Datastore)
		delete(commands, "backup")
		if engine.Name == "sqlite" {
			delete(commands, "restore")
		}
		for _, args := range commands {
			refuses(t, fmt.Sprintf("it has schema 1, and this binary reads schema %d: run sqube migrate up, or serve, first", newest), args)
		}
		older := fmt.Sprintf(" has schema 1 of %d: run sqube migrate up, or serve\n", newest)
		if status := succeeds(t, []string{"migrate", "status", "--datastore", engine.Datastore}); !strings.HasSuffix(status, older) {
			t.Errorf("the status is %q", status)
		}

		s := serve(t, []string{"--datastore", engine.Datastore})
		if !strings.Contains(s.Log(t), fmt.Sprintf(`msg="bringing the schema up to date" from=1 to=%d`, newest)) {
			t.Error("the log does not mention the steps")
		}
		if path, ok := strings.CutPrefix(engine.Datastore, "sqlite://"); ok { // there is a copy from before
			copies, err := filepath.Glob(path + "-schema*")
			if err != nil || len(copies) != 1 || copies[0] != path+"-schema1" {
				t.Fatalf("the copies are %q, %v", copies, err)
			}
			if info, err := os.Stat(copies[0]); err != nil || info.Mode() != 0o600 {
				t.Errorf("the copy: %v, %v", info.Mode(), err)
			}
			if status := succeeds(t, []string{"migrate", "status", "--datastore", "sqlite://" + copies[0]}); !strings.HasSuffix(status, older) {
				t.Errorf("the status of the copy is %q", status)
			}
		}
		c := client(t, s.Kubeconfig)
		kept, err := c.CoreV1().ConfigMaps("old").Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil || kept.ResourceVersion != "227" || kept.Data["a"] != "2" || kept.Labels["tier"] != "front" {
			t.Errorf("a ConfigMap: %v, %v", kept, err)
		}
		if _, err := c.CoreV1().ConfigMaps("old").Get(t.Context(), "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the deleted object: %v", err)
		}
		if secret, err := c.CoreV1().Secrets("old").Get(t.Context(), "secret", metav1.GetOptions{}); err != nil || string(secret.Data["password"]) != "open" {
			t.Errorf("a Secret: %v, %v", secret, err)
		}
		harness.Retry(t, "the custom resource is served", func() error {
			return c.CoreV1().RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/old/widgets/small").Do(t.Context()).Error()
		})
		kept.Data["a"] = "3"
		if _, err := c.CoreV1().ConfigMaps("old").Update(t.Context(), kept, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		for command, args := range reading(t, engine.Datastore) {
			text := succeeds(t, args)
			if command == "check" && !strings.HasSuffix(text, ", nothing wrong\n") {
				t.Errorf("the check: %s", text)
			}
		}
	})
}

// TestUpgradeWithLittleRoom upgrades a database for whose copy there is no room.
func TestUpgradeWithLittleRoom(t *testing.T) {
	t.Parallel()
	engine := harness.Engine{Name: "sqlite", Datastore: harness.SQLite(t)}
	harness.LaySchema(t, engine, 1).Close()
	disk := faults.NewDisk(t)
	disk.Room(6 << 20)
	if stdout, stderr, code := sqube.Run(t, []string{"migrate", "up", "--datastore", engine.Datastore}, disk.Run); code != 0 {
		t.Errorf("migrate up ends with code %d\n%s%s", code, stdout, stderr)
	}
	if copies, err := filepath.Glob(strings.TrimPrefix(engine.Datastore, "sqlite://") + "-schema*"); err != nil || len(copies) != 0 {
		t.Errorf("there is %q, %v", copies, err)
	}
}

// backsUpOlder makes a backup before the schema changes, and restores it.
func backsUpOlder(t *testing.T, engine harness.Engine) {
	file, restored := filepath.Join(t.TempDir(), "backup"), harness.SQLite(t)
	if engine.Name == "postgres" {
		restored = harness.Postgres(t)
	}
	if text := succeeds(t, []string{"backup", file, "--datastore", engine.Datastore}); !strings.Contains(text, " of schema 1, ") {
		t.Errorf("the backup prints %q", text)
	}
	before, err := os.ReadFile(file)
	harness.Must(t, err)
	succeeds(t, []string{"restore", file, "--datastore", restored})
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the backup has changed: %v", err)
	}
	succeeds(t, []string{"check", "--datastore", restored})
	if text := succeeds(t, []string{"show", "configmaps", "kept", "-n", "old", "--datastore", restored}); !strings.Contains(text, `a: "2"`) {
		t.Errorf("restored, it is\n%s", text)
	}
}

// TestNewerSchema makes the database newer than the binary.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		newest := len(harness.Schemas(t, engine.Name))
		db := harness.LaySchema(t, engine, newest)
		if _, err := db.Exec("UPDATE schema_migrations SET version = 1000"); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("it has schema 1000, and this binary knows those up to %d: use a sqube at least as new as the one that last served it", newest)
		commands := reading(t, engine.Datastore)
		commands["serve"] = serveArgs(t, t.TempDir(), "--datastore", engine.Datastore)
		commands["migrate"] = []string{"migrate", "up", "--datastore", engine.Datastore}
		for _, args := range commands {
			refuses(t, want, args)
		}
		for _, statement := range []string{"ALTER TABLE schema_migrations ADD COLUMN release text", "UPDATE schema_migrations SET release = '77.1.2'"} {
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		refuses(t, "it has schema 1000, made by sqube 77.1.2, and this binary, sqube ", commands["serve"])
		status := succeeds(t, []string{"migrate", "status", "--datastore", engine.Datastore})
		if !strings.Contains(status, ", made by sqube 77.1.2: the database is newer than this binary: use a newer sqube") {
			t.Errorf("the status is %q", status)
		}
	})
}

// TestServersMigrateOnce starts several servers at once on a database with an older schema: only one migrates it.
func TestServersMigrateOnce(t *testing.T) {
	t.Parallel()
	const takes = `msg="bringing the schema up to date" from=1 to=`
	t.Run("sqlite", func(t *testing.T) {
		engine := harness.Engine{Name: "sqlite", Datastore: harness.SQLite(t)}
		harness.LaySchema(t, engine, 1).Close()
		database := sqube.Options{Datastore: engine.Datastore}
		served, refused := sqube.Launch(t, database), sqube.Launch(t, database)
		select {
		case <-served.Exited():
			served, refused = refused, served
		case <-refused.Exited():
		}
		if err := oneLine(refused.Log(t), "the database is in use by another sqube"); refused.Code(t) != 1 || err != nil {
			t.Errorf("the second server: %v", err)
		}
		served.WaitReady(t)
		if !strings.Contains(served.Log(t), takes) {
			t.Error("the first server did not migrate")
		}
	})
	t.Run("postgres", func(t *testing.T) {
		engine := harness.Engine{Name: "postgres", Datastore: harness.Postgres(t)}
		harness.LaySchema(t, engine, 1).Close()
		var servers []*sqube.Server
		keys := sqube.KeyFile(t)
		for range 2 {
			servers = append(servers, sqube.Launch(t, sqube.Options{Datastore: engine.Datastore, Args: []string{"--pki-encryption-key-file", keys}}))
		}
		took := 0
		for _, s := range servers {
			s.WaitReady(t)
			took += strings.Count(s.Log(t), takes)
		}
		if took != 1 {
			t.Errorf("%d servers migrated", took)
		}
	})
}
