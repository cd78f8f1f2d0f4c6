package serve

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// TestFilesMoveAway renames the data folder of a server, and later deletes the database. The server notices even if nothing is
// written, is not ready, and acknowledges nothing that a restart would lose.
func TestFilesMoveAway(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	w := newWriter(t, s)
	ready := func(want int) {
		t.Helper()
		harness.Retry(t, "the server is ready, or not", func() error {
			code, text := fetch(t, insecure, http.MethodGet, s.URL+"/readyz", "")
			if code != want || want != http.StatusOK && !strings.Contains(text, "[-]datastore failed") {
				return fmt.Errorf("%d: %s", code, text)
			}
			return nil
		})
		if code, text := fetch(t, insecure, http.MethodGet, s.URL+"/livez", ""); code != http.StatusOK {
			t.Errorf("/livez returns %d\n%s", code, text)
		}
	}
	logs := func(line string, times int) {
		t.Helper()
		harness.Retry(t, "the log says it once", func() error {
			if n := strings.Count(s.Log(t), line); n != times {
				return fmt.Errorf("%q occurs %d times, not %d", line, n, times)
			}
			return nil
		})
	}
	const lost, file = "nothing can be written: it would be lost with the next restart; clients will retry", "sqube.db (the database) is gone: it, or a folder above it, was deleted, moved or unmounted: put the former file back"
	harness.Must(t, os.Rename(s.DataDir, s.DataDir+"-away"))
	logs(lost, 1)
	if log := s.Log(t); !strings.Contains(log, file) {
		t.Errorf("the log does not say %q", file)
	}
	ready(http.StatusInternalServerError)
	for i := range 5 {
		if err := w.create(t, fmt.Sprint("away-", i)); err == nil || !strings.Contains(err.Error(), "a file of the datastore was deleted, moved or replaced") {
			t.Errorf("while the folder is away, a create returns %v", err)
		}
	}
	w.kept(t)
	logs(lost, 1)
	harness.Must(t, os.Rename(s.DataDir+"-away", s.DataDir))
	ready(http.StatusOK)
	logs("the files of the database are back in their place", 1)
	w.creates(t, "back")

	harness.Must(t, os.Remove(filepath.Join(s.DataDir, "sqube.db-wal")))
	w.refused(t, "without-log")
	logs(lost, 2)
	ready(http.StatusInternalServerError)
	w.kept(t)
	s.Kill(t) // what the log held has been moved to the file
	again := serveAgain(t, s, nil)
	w.kept(t)
	settle(t, again)
	again.Stop(t)
	checked(t, "sqlite://"+filepath.Join(s.DataDir, "sqube.db"))
}

// TestDatabaseIsMissing starts servers whose database is gone or incomplete. None begins an empty cluster before it is told to.
func TestDatabaseIsMissing(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	setData(t, client(t, s.Kubeconfig), "older", "value")
	s.Stop(t)
	s = serveIn(t, s.DataDir, nil)
	setData(t, client(t, s.Kubeconfig), "kept", "value")
	s.Kill(t)
	file := func(dir string) string { return filepath.Join(dir, "sqube.db") }
	without := func(suffixes ...string) string {
		dir := copied(t, s.DataDir)
		for _, suffix := range suffixes {
			harness.Must(t, os.Remove(file(dir)+suffix))
		}
		return dir
	}
	refusesUnchanged := func(want, dir string, more ...string) {
		t.Helper()
		before := contents(t, dir)
		refuses(t, want, serveArgs(t, dir, more...))
		if after := contents(t, dir); len(after) != len(before) {
			t.Errorf("of %d files there are %d after a start", len(before), len(after))
		}
	}
	gone := func(dir string) string {
		return "sqlite://" + file(dir) + " is missing or empty, but the server of " + dir + " has served sqlite://" + file(s.DataDir) + ": put the database back"
	}

	alone := without("-wal", "-shm")
	const incomplete = "its last commits are missing: they were in "
	refusesUnchanged(incomplete, alone)
	refuses(t, incomplete, []string{"check", "--data-dir", alone})
	refuses(t, incomplete, []string{"backup", filepath.Join(t.TempDir(), "backup.db"), "--data-dir", alone})
	refuses(t, incomplete, []string{"migrate", "up", "--data-dir", alone})
	before := contents(t, s.DataDir)
	harness.Must(t, os.WriteFile(file(alone)+"-wal", before["sqube.db-wal"], 0o600))
	again := serveIn(t, alone, nil)
	if value := data(t, client(t, again.Kubeconfig), "kept"); value != "value" {
		t.Errorf("with its log, the file has %q", value)
	}
	again.Stop(t)

	// Or one goes on without them.
	alone = without("-wal", "-shm")
	succeeds(t, []string{"restore", file(alone), "--force", "--datastore", "sqlite://" + file(alone)})
	again = serveIn(t, alone, nil)
	if c := client(t, again.Kubeconfig); data(t, c, "older") != "value" || data(t, c, "kept") != "" {
		t.Errorf("without its log, the file has %q and %q", data(t, c, "older"), data(t, c, "kept"))
	}
	again.Stop(t)

	missing := without("", "-wal", "-shm")
	refusesUnchanged(gone(missing), missing)
	refusesUnchanged("sqlite:///none/sqube.db is missing or empty", missing, "--datastore", "sqlite:///none/sqube.db")
	refuses(t, "is missing or empty, but the server of "+missing+" has served", serveArgs(t, missing, "--datastore", harness.Postgres(t)))
	young := without("", "-wal", "-shm")
	harness.Must(t, os.WriteFile(file(young), nil, 0o600))
	refusesUnchanged(gone(young), young)

	succeeds(t, []string{"restore", file(without()), "--datastore", "sqlite://" + file(missing)})
	again = serveIn(t, missing, nil)
	if value := data(t, client(t, again.Kubeconfig), "kept"); value != "value" {
		t.Errorf("the restored database has %q", value)
	}
	again.Stop(t)

	harness.Must(t, os.Remove(filepath.Join(young, "pki", "database")))
	again = serveIn(t, young, nil)
	if value := data(t, client(t, again.Kubeconfig), "kept"); value != "" {
		t.Errorf("the new cluster has %q", value)
	}
	settle(t, again)
	again.Stop(t)
	serveIn(t, young, nil).Stop(t)
}

// TestSnapshotOfAMachine serves a snapshot of a machine's disk from before its last writes, after a boot. A client that knows a
// lost resourceVersion is told to start over; one that doesn't continues.
func TestSnapshotOfAMachine(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.Kubeconfig)
	setData(t, c, "first", "value")
	kept := setData(t, c, "kept", "value")
	harness.Must(t, s.Signal(syscall.SIGSTOP))
	snapshot := copied(t, s.DataDir)
	harness.Must(t, s.Signal(syscall.SIGCONT))
	lost := setData(t, c, "lost", "value")
	s.Stop(t)

	path := filepath.Join(snapshot, "sqube.db")
	db := harness.OpenDatabase(t, harness.Engine{Name: "sqlite", Datastore: "sqlite://" + path})
	_, err := db.Exec("UPDATE counter SET boot = 'another'")
	harness.Must(t, err)
	again := serveIn(t, snapshot, nil)
	c = client(t, again.Kubeconfig)
	setData(t, c, "new", "value")
	maps := c.CoreV1().ConfigMaps("default")
	for version, want := range map[string]string{kept: "ADDED new", lost: "ERROR Expired"} {
		// The controller of kube-root-ca.crt may have been late.
		w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, FieldSelector: "metadata.name=new"})
		harness.Must(t, err)
		event := <-w.ResultChan()
		w.Stop()
		got := string(event.Type) + " "
		switch object := event.Object.(type) {
		case *corev1.ConfigMap:
			got += object.Name
		case *metav1.Status:
			got += string(object.Reason)
		}
		if got != want {
			t.Errorf("a watch from %s gets %s, not %s", version, got, want)
		}
	}
	if _, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: lost, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list at a lost resourceVersion: %v", err)
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: lost})
	harness.Must(t, err)
	if !slices.ContainsFunc(list.Items, func(m corev1.ConfigMap) bool { return m.Name == "new" }) {
		t.Errorf("a list that is at least as new as a lost resourceVersion lacks what was written since: %v", list.Items)
	}
	again.Stop(t)
	checked(t, "sqlite://"+path)
}
