package serve

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const jumps = "resourceVersions jump ahead"

// writesLost writes a ConfigMap again and again, and returns its last resourceVersion.
func writesLost(t *testing.T, s *sqube.Server) (last string) {
	t.Helper()
	c := client(t, s.Kubeconfig)
	for i := range 100 {
		last = setData(t, c, "lost", fmt.Sprint(i))
	}
	return last
}

// withoutLost checks that the last writes are missing, that their last resourceVersion is not used again, and what the log says.
func withoutLost(t *testing.T, s *sqube.Server, lost, says string) {
	t.Helper()
	c := client(t, s.Kubeconfig)
	if value := data(t, c, "lost"); value == "99" {
		t.Errorf("the last writes are there")
	}
	if value := data(t, c, "kept"); value != "value" {
		t.Errorf("earlier writes are missing: %q", value)
	}
	if version := setData(t, c, "new", lost); number(t, version) <= number(t, lost) {
		t.Errorf("resourceVersion %s comes after %s", version, lost)
	}
	_, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: lost, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a list at a lost resourceVersion: %v", err)
	}
	want := 1
	if says == "" {
		want = 0
	}
	if log := s.Log(t); strings.Count(log, jumps) != want || !strings.Contains(log, says) {
		t.Errorf("the log does not say once %q and %q:\n%s", jumps, says, log)
	}
}

// TestOlderStateInPlace puts older files in the place of a database, and damages or loses the write-ahead log of a killed server.
func TestOlderStateInPlace(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	path := filepath.Join(s.DataDir, "sqube.db")
	setData(t, client(t, s.Kubeconfig), "kept", "value")
	s.Stop(t)
	older, err := os.ReadFile(path)
	harness.Must(t, err)
	backup := filepath.Join(t.TempDir(), "backup.db")
	succeeds(t, []string{"backup", backup, "--data-dir", s.DataDir})

	s = serveIn(t, s.DataDir, nil)
	lost := writesLost(t, s)
	s.Stop(t)
	harness.Must(t, os.WriteFile(path, older, 0o600))
	s = serveIn(t, s.DataDir, nil)
	withoutLost(t, s, lost, "this is an older state")

	lost = writesLost(t, s)
	s.Kill(t)
	log, err := os.ReadFile(path + "-wal")
	harness.Must(t, err)
	harness.Must(t, os.Truncate(path+"-wal", int64(len(log)/4)))
	s = serveIn(t, s.DataDir, nil)
	withoutLost(t, s, lost, "")

	lost = writesLost(t, s)
	s.Kill(t)
	harness.Must(t, os.Remove(path+"-wal"))
	s = serveIn(t, s.DataDir, nil)
	withoutLost(t, s, lost, "this is an older state")

	lost = writesLost(t, s)
	s.Kill(t)
	log, err = os.ReadFile(path + "-wal")
	harness.Must(t, err)
	for i := range 2000 {
		log[len(log)/8+i] ^= byte(i*7 + 1)
	}
	harness.Must(t, os.WriteFile(path+"-wal", log, 0o600))
	const damaged = "-wal is damaged at byte "
	refuses(t, damaged, serveArgs(t, s.DataDir))
	refuses(t, damaged, []string{"check", "--data-dir", s.DataDir})
	refuses(t, damaged, []string{"backup", filepath.Join(t.TempDir(), "backup.db"), "--data-dir", s.DataDir})
	succeeds(t, []string{"restore", path, "--force", "--data-dir", s.DataDir})
	s = serveIn(t, s.DataDir, nil)
	withoutLost(t, s, lost, "")

	lost = writesLost(t, s)
	s.Kill(t)
	harness.Must(t, os.Remove(path+"-wal"))
	harness.Must(t, os.Rename(backup, path))
	s = serveIn(t, s.DataDir, nil)
	withoutLost(t, s, lost, "this is an older state")
	settle(t, s)
	s.Stop(t)
	checked(t, "sqlite://"+path)

	// All files at once, in place.
	lost = lostWhileStopped(t, s)
	s = serveIn(t, s.DataDir, nil)
	withoutLost(t, s, lost, "and the mark beside it were copied to their place")
	s.Stop(t)
	s = serveIn(t, s.DataDir, nil)
	settle(t, s)
	if log := s.Log(t); strings.Contains(log, jumps) {
		t.Errorf("the next start says so again:\n%s", log)
	}
	s.Stop(t)
}

// lostWhileStopped starts a stopped server, writes, stops it, and puts all its files back as they were before.
func lostWhileStopped(t *testing.T, s *sqube.Server) (lost string) {
	t.Helper()
	before := contents(t, s.DataDir)
	s = serveIn(t, s.DataDir, nil)
	lost = writesLost(t, s)
	s.Stop(t)
	for name, data := range before {
		harness.Must(t, os.WriteFile(filepath.Join(s.DataDir, name), data, 0o600))
	}
	return lost
}

// TestPgDumpByHand copies a database with Postgres' own programs to another one of the same server, twice.
func TestPgDumpByHand(t *testing.T) {
	t.Parallel()
	from := harness.Postgres(t)
	s := serve(t, []string{"--datastore", from})
	c := client(t, s.Kubeconfig)
	setData(t, c, "kept", "value")
	dump := filepath.Join(t.TempDir(), "dump")
	run := func(name string, args ...string) {
		t.Helper()
		if output, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, output)
		}
	}
	run("pg_dump", "--format=custom", "--file="+dump, from)
	lost := writesLost(t, s)
	s.Stop(t)
	var copied string
	for range 2 {
		copied = harness.Postgres(t)
		run("pg_restore", "--no-owner", "--dbname="+copied, dump)
		s = serveIn(t, s.DataDir, []string{"--datastore", copied})
		withoutLost(t, s, lost, "the database is a copy of another")
		lost = writesLost(t, s)
		s.Stop(t)
	}
	s = serveIn(t, s.DataDir, []string{"--datastore", copied})
	if version := setData(t, client(t, s.Kubeconfig), "new", "again"); number(t, version) > number(t, lost)+10_000 || strings.Contains(s.Log(t), jumps) {
		t.Errorf("after another start, resourceVersion %s follows %s:\n%s", version, lost, s.Log(t))
	}
	s.Stop(t)
}
