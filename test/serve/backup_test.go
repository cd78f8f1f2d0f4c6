package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// setData creates or updates a ConfigMap, and returns its resourceVersion.
func setData(t *testing.T, c kubernetes.Interface, name, value string) string {
	t.Helper()
	version, err := trySetData(t, c, name, value)
	harness.Must(t, err)
	return version
}

func trySetData(t *testing.T, c kubernetes.Interface, name, value string) (version string, err error) {
	t.Helper()
	maps := c.CoreV1().ConfigMaps("default")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
	set, err := maps.Update(t.Context(), object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		set, err = maps.Create(t.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		return "", err
	}
	return set.ResourceVersion, nil
}

// data returns what setData has set, or "" if there is no such ConfigMap.
func data(t *testing.T, c kubernetes.Interface, name string) string {
	t.Helper()
	object, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return object.Data["value"]
}

// TestBackupRestore backs up while the server runs, writes more, and restores: the backup, and moments in between.
func TestBackupRestore(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		database := []string{"--datastore", engine.Datastore}
		s := serve(t, database)
		c := client(t, s.Kubeconfig)
		setData(t, c, "kept", "before")
		setData(t, c, "gone", "before")
		file := filepath.Join(t.TempDir(), "backup")
		if text := succeeds(t, append([]string{"backup", file}, database...)); !strings.HasPrefix(text, file+": ") {
			t.Errorf("the backup prints %q", text)
		}
		refuses(t, "exists: give another name", append([]string{"backup", file}, database...))
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the backup has mode %v, %v", info.Mode(), err)
		}

		checksBackup(t, engine, file)

		moment := setData(t, c, "kept", "between")
		harness.Must(t, c.CoreV1().ConfigMaps("default").Delete(t.Context(), "gone", metav1.DeleteOptions{}))
		last := setData(t, c, "new", "after")
		page, err := changesIn(t, s.Kubeconfig, "default").List(t.Context(), metav1.ListOptions{Limit: 1})
		harness.Must(t, err)

		// A past moment, in a new database, while the server runs.
		then := "sqlite://" + filepath.Join(t.TempDir(), "then.db")
		succeeds(t, []string{"restore", engine.Datastore, "--to-revision", moment, "--datastore", then})
		if text := succeeds(t, []string{"show", "configmaps", "kept", "--datastore", then}); !strings.Contains(text, "value: between") {
			t.Errorf("at revision %s it is\n%s", moment, text)
		}
		refuses(t, "there is no such object", []string{"show", "configmaps", "new", "--datastore", then})
		succeeds(t, []string{"show", "configmaps", "gone", "--datastore", then})
		refuses(t, "is not empty", []string{"restore", engine.Datastore, "--datastore", then})
		refuses(t, "revision 10000000 must be between", []string{"restore", engine.Datastore, "--to-revision", "10000000", "--datastore", then})
		if engine.Name == "sqlite" {
			refusesMoments(t, then)
		}
		servesAsOf(t, c, engine.Datastore, moment)
		if held := spans(t, engine.Datastore); len(held) != 1 || held[0][1] < number(t, last) {
			t.Errorf("after revision %s, it lists %v", last, held)
		}

		refuses(t, "in use by another sqube", append([]string{"restore", file, "--force"}, database...))
		s.Stop(t)
		refuses(t, "is not empty: give another --datastore, or --force", append([]string{"restore", file}, database...))
		// A database can be restored in place, and is not lost if that fails.
		succeeds(t, append([]string{"restore", engine.Datastore, "--to-revision", moment, "--force"}, database...))
		if text := succeeds(t, append([]string{"show", "configmaps", "kept"}, database...)); !strings.Contains(text, "value: between") {
			t.Errorf("restored in place, it is\n%s", text)
		}
		const twice = "DROP INDEX log_live; CREATE TEMP TABLE another AS SELECT * FROM log WHERE name = 'kept' AND replaced_by IS NULL; UPDATE another SET id = 4711; INSERT INTO log SELECT * FROM another"
		if _, err := harness.OpenDatabase(t, harness.Engine{Name: "sqlite", Datastore: then}).Exec(twice); err != nil {
			t.Fatal(err)
		}
		refuses(t, ": load: ", append([]string{"restore", then, "--force"}, database...))
		if text := succeeds(t, append([]string{"show", "configmaps", "kept"}, database...)); !strings.Contains(text, "value: between") {
			t.Errorf("after a failed restore, it is\n%s", text)
		}

		if text := succeeds(t, append([]string{"restore", file, "--force"}, database...)); !strings.Contains(text, "what it held before is in ") {
			t.Errorf("the restore prints %q", text)
		}

		again := serveIn(t, s.DataDir, database)
		c = client(t, again.Kubeconfig)
		for name, want := range map[string]string{"kept": "before", "gone": "before", "new": ""} {
			if got := data(t, c, name); got != want {
				t.Errorf("%s is %q instead of %q", name, got, want)
			}
		}
		// Clients that have seen what came after the backup must relist, and no version is used twice.
		isLost(t, c, number(t, last))
		areLost(t, again.Kubeconfig, number(t, last))
		if _, err := changesIn(t, again.Kubeconfig, "default").List(t.Context(), metav1.ListOptions{Continue: page.GetContinue()}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a list of changes goes on at a lost revision: %v", err)
		}
		if version := setData(t, c, "new", "again"); number(t, version) <= number(t, last) {
			t.Errorf("version %s comes after %s", version, last)
		}
		again.Stop(t)
	})
}

// refusesMoments names moments of a database that it can't have.
func refusesMoments(t *testing.T, datastore string) {
	t.Helper()
	refuses(t, "versions that old are no longer kept: the earliest moment is 20", []string{"restore", datastore, "--to-time", "2020-01-01T00:00:00Z", "--datastore", "sqlite://none.db"})
	refuses(t, "--to-time 2099-01-01T00:00:00Z is in the future", []string{"restore", datastore, "--to-time", "2099-01-01T00:00:00Z", "--datastore", "sqlite://none.db"})
	refuses(t, "--at 2099-01-01T00:00:00Z is in the future", []string{"show", "configmaps", "kept", "--at", "2099-01-01T00:00:00Z", "--datastore", datastore})
	refuses(t, `--at must be a revision, or a time like 2026-11-21T10:00:00Z, not "yesterday"`, []string{"show", "configmaps", "kept", "--at", "yesterday", "--datastore", datastore})
}

// checksBackup tests sqube check with a backup, and with what it can't check.
func checksBackup(t *testing.T, engine harness.Engine, file string) {
	t.Helper()
	refuses(t, "is a folder of sqube backup --follow: restore it", []string{"check", t.TempDir()})
	refuses(t, "no such file", []string{"check", filepath.Join(t.TempDir(), "none")})
	if engine.Name != "sqlite" {
		refuses(t, "is an archive of pg_dump: restore it", []string{"check", file})
		return
	}
	if text := succeeds(t, []string{"check", file}); !strings.Contains(text, file+": ") || !strings.Contains(text, "nothing wrong") {
		t.Errorf("the check of a backup prints %q", text)
	}
	refuses(t, "--repair is for databases", []string{"check", file, "--repair"})
	data, err := os.ReadFile(file)
	harness.Must(t, err)
	cut := filepath.Join(t.TempDir(), "cut")
	harness.Must(t, os.WriteFile(cut, data[:len(data)/2], 0o600))
	refuses(t, cut+": ", []string{"check", cut})
}

func number(t *testing.T, version string) int {
	t.Helper()
	n, err := strconv.Atoi(version)
	harness.Must(t, err)
	return n
}

// TestRestoreAfterJumps restores states from before failovers, over the database and from an old backup, again and again: no revision comes
// again, and the age of the backup counts once.
func TestRestoreAfterJumps(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore})
		moment := setData(t, client(t, s.Kubeconfig), "kept", "before")
		s.Stop(t)
		for _, table := range []string{"counter", "log"} {
			if _, err := harness.OpenDatabase(t, engine).Exec(fmt.Sprintf("UPDATE %s SET written_at = written_at - %d", table, 100*24*time.Hour.Milliseconds())); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(t.TempDir(), "backup")
		succeeds(t, []string{"backup", file, "--datastore", engine.Datastore})
		failovers := fmt.Sprintf("UPDATE counter SET revision = revision + %d", 3*dialect.RevisionJump)
		if _, err := harness.OpenDatabase(t, engine).Exec(failovers); err != nil {
			t.Fatal(err)
		}
		newest := func() (revision int64) {
			harness.Must(t, harness.OpenDatabase(t, engine).QueryRow("SELECT revision FROM counter").Scan(&revision))
			return revision
		}
		for i, restore := range [][]string{{engine.Datastore, "--to-revision", moment}, {file}, {file}, {file}} {
			seen := newest()
			succeeds(t, append([]string{"restore", "--datastore", engine.Datastore, "--force"}, restore...))
			if now := newest(); now <= seen {
				t.Errorf("after the restore of %s, revisions continue at %d, after %d", restore[0], now, seen)
			} else if age := int64(90 * 24 * time.Hour / time.Second * dialect.RevisionJumpPerSecond); i > 0 && now > seen+age {
				t.Errorf("the restore of %s adds the age of the backup again: from %d to %d", restore[0], seen, now)
			}
		}
		// Near the end of 64 bits there is no room for another jump.
		if _, err := harness.OpenDatabase(t, engine).Exec("UPDATE counter SET revision = 9223372036854770000"); err != nil {
			t.Fatal(err)
		}
		const full = "near the end of 64 bits"
		refuses(t, full, serveArgs(t, s.DataDir, "--datastore", engine.Datastore))
		refuses(t, full, []string{"restore", engine.Datastore, "--datastore", "sqlite://" + filepath.Join(t.TempDir(), "sqube.db")})
		refuses(t, full, []string{"restore", file, "--datastore", engine.Datastore, "--force"})
		reader := serve(t, []string{"--in-memory", "--from", engine.Datastore})
		if value := data(t, client(t, reader.Kubeconfig), "kept"); value != "before" {
			t.Errorf("the database can't be read: it has %q", value)
		}
		if log := reader.Log(t); !strings.Contains(log, "resourceVersions are above 2^53") {
			t.Errorf("the log does not say that resourceVersions are high:\n%s", log)
		}
	})
}
