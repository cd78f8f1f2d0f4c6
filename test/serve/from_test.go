package serve

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness/sqube"
)

// serveCopy starts a server in memory on a copy of a source.
func serveCopy(t *testing.T, source string, args ...string) *sqube.Server {
	t.Helper()
	return serve(t, append([]string{"--in-memory", "--from", source}, args...))
}

// servesAsOf starts a server on what TestBackupRestore has in a database that is served, and changes the copy.
func servesAsOf(t *testing.T, original kubernetes.Interface, datastore, revision string) {
	t.Helper()
	c := client(t, serveCopy(t, datastore, "--at", revision).Kubeconfig)
	if kept, after := data(t, c, "kept"), data(t, c, "new"); kept != "between" || after != "" {
		t.Errorf("in a copy as of revision %s they are %q and %q", revision, kept, after)
	}
	setData(t, c, "kept", "tried")
	if value := data(t, original, "kept"); value != "between" {
		t.Errorf("after a write in a copy it is %q", value)
	}
}

// servesCopies starts servers on what TestConsoleOfAFile shows, with a Node that counts calls.
func servesCopies(t *testing.T, backup, archive string, encrypted []string, calls *kubeletCalls) {
	t.Helper()
	s := serveCopy(t, backup, encrypted...)
	c := client(t, s.Kubeconfig)
	if door, err := c.CoreV1().Secrets("default").Get(t.Context(), "door", metav1.GetOptions{}); err != nil || string(door.Data["code"]) != "1234" {
		t.Errorf("a Secret: %v, %v", door, err)
	}
	logs := func() string {
		_, err := c.CoreV1().Pods("default").GetLogs("runs", &corev1.PodLogOptions{}).Stream(t.Context())
		return fmt.Sprint(err)
	}
	if err := logs(); !strings.Contains(err, "a copy of "+backup+", which does not connect to 127.0.0.1:") || !strings.Contains(err, "--from-outbound=127.0.0.1:") || calls.Load() > 0 {
		t.Errorf("the log of a Pod: %s, with %d calls of its kubelet", err, calls.Load())
	}
	setData(t, c, "settings", "tried")
	if text := s.Stdout(t); !strings.Contains(text, "a copy of "+backup+", as of 20") {
		t.Errorf("it prints %s", text)
	}

	s = serveCopy(t, archive, append([]string{"--from-outbound", "127.0.0.1"}, encrypted...)...)
	c = client(t, s.Kubeconfig)
	if value := data(t, c, "settings"); value != "late" {
		t.Errorf("in a copy of the archive it is %q", value)
	}
	if err := logs(); strings.Contains(err, "a copy of") || calls.Load() == 0 {
		t.Errorf("the log of a Pod, allowed: %s, with %d calls of its kubelet", err, calls.Load())
	}
}

// refusesCopies starts servers on what can't be copied.
func refusesCopies(t *testing.T, backup, newer, text string) {
	t.Helper()
	for from, want := range map[string]string{backup: "--encryption-provider-config", newer: "it has schema 1000, ", text: "this file is not an SQLite database"} {
		refuses(t, want, serveArgs(t, filepath.Join(t.TempDir(), "data"), "--in-memory", "--from", from))
	}
}
