package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestInMemory serves from memory, and checks what is on disk meanwhile and afterwards.
func TestInMemory(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	s := serve(t, []string{"--in-memory", "--simulated-nodes=2"}, env("TMPDIR="+temporary))
	if log := s.Log(t); !strings.Contains(log, "datastore=memory") {
		t.Errorf("the log does not mention where the state is:\n%s", log)
	}
	admin := client(t, s.Kubeconfig)
	harness.Eventually(t, "there are two simulated nodes", func() bool {
		nodes, err := admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(nodes.Items) == 2
	})
	watch, err := admin.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	defer watch.Stop()
	for i := range 100 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("of-%d", i)}, Data: map[string]string{"text": strings.Repeat("x", 10_000)}}
		if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := admin.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 60})
	harness.Must(t, err)
	harness.Must(t, admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "of-99", metav1.DeleteOptions{}))
	rest, err := admin.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Continue: first.Continue})
	if err != nil || len(first.Items)+len(rest.Items) < 100 {
		t.Errorf("the pages have %d and %d objects: %v", len(first.Items), len(rest.Items), err)
	}

	for _, path := range openFiles(t, s.Pid()) {
		for _, folder := range []string{s.DataDir, temporary, "/dev/shm"} {
			if strings.HasPrefix(path, folder+"/") {
				t.Errorf("%s is open", path)
			}
		}
	}
	leavesNothing(t, s, temporary, "admin.kubeconfig")
	refuses(t, "sqube.db: no such file or directory: the server of "+s.DataDir+" runs with --in-memory, so its state is in no file",
		[]string{"history", "configmaps", "of-1", "--data-dir", s.DataDir})
	refuses(t, "the server of "+s.DataDir+" runs with --in-memory and keeps its CA in memory only: use its admin.kubeconfig",
		[]string{"kubeconfig", "--user", "jane", "--data-dir", s.DataDir})
	s.Stop(t)
	leavesNothing(t, s, temporary)
}

// TestKillInMemory kills an in-memory server, which has no time to clean up.
func TestKillInMemory(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	s := serve(t, []string{"--in-memory"}, env("TMPDIR="+temporary))
	s.Kill(t)
	leavesNothing(t, s, temporary, "admin.kubeconfig")
}

// leavesNothing checks that an in-memory server has written nothing but the given files under --data-dir.
func leavesNothing(t *testing.T, s *sqube.Server, temporary string, but ...string) {
	t.Helper()
	if names := entries(t, s.DataDir); !slices.Equal(names, but) {
		t.Errorf("--data-dir has %q", names)
	}
	if names := entries(t, temporary); len(names) > 0 {
		t.Errorf("$TMPDIR has %q", names)
	}
	own := regexp.MustCompile(fmt.Sprintf(`\b%d\b`, s.Pid())) // as a whole number: Postgres' files there have random ones
	for _, name := range entries(t, "/dev/shm") {
		if own.MatchString(name) {
			t.Errorf("/dev/shm has %s", name)
		}
	}
}

// TestInMemoryShadowsNothing starts an in-memory server where it would hide a cluster, or with a database.
func TestInMemoryShadowsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	harness.Must(t, os.Mkdir(filepath.Join(dir, "pki"), 0o700))
	refuses(t, "give another --data-dir", []string{"serve", "--in-memory", "--data-dir", dir, "--secure-port", freePort(t)})
	refuses(t, "--simulated-nodes needs --in-memory", []string{"serve", "--simulated-nodes=1", "--secure-port", freePort(t)})
	refuses(t, "must not be given together", []string{"serve", "--in-memory", "--datastore=sqlite://x.db", "--secure-port", freePort(t)})
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	harness.Must(t, err)
	for _, entry := range found {
		names = append(names, entry.Name())
	}
	return names
}

// openFiles returns the paths of the files, on disk or in memory, that a process has open.
func openFiles(t *testing.T, pid int) (paths []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	for _, name := range entries(t, dir) {
		if path, err := os.Readlink(filepath.Join(dir, name)); err == nil && strings.HasPrefix(path, "/") {
			paths = append(paths, path)
		}
	}
	return paths
}
