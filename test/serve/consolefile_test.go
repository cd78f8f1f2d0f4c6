package serve

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// shownConsole is a running sqube console SOURCE.
type shownConsole struct {
	*sqube.Process
	t         *testing.T
	client    *http.Client
	url       string
	temporary string
}

func showConsole(t *testing.T, args ...string) *shownConsole {
	t.Helper()
	jar, err := cookiejar.New(nil)
	harness.Must(t, err)
	c := &shownConsole{t: t, client: &http.Client{Jar: jar, Timeout: harness.Patience / 2}, temporary: t.TempDir()}
	c.Process = sqube.Command(t, append([]string{"console", "--no-browser"}, args...), env("TMPDIR="+c.temporary))
	harness.Eventually(t, "the console prints its URL", func() bool { return strings.Contains(c.Stdout(t), "\n") })
	var code int
	var page string
	if c.url, code, page = openConsole(t, c.client, strings.TrimSpace(c.Stdout(t))); code != http.StatusOK || !strings.Contains(page, "app.js") {
		t.Fatalf("the page: %d %s", code, page)
	}
	return c
}

func (c *shownConsole) do(method, path, body string) (int, string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	harness.Must(c.t, err)
	request.Header.Set("Content-Type", "application/json")
	return harness.Do(c.t, c.client, request)
}

func (c *shownConsole) get(path string) (int, string) {
	c.t.Helper()
	return c.do(http.MethodGet, path, "")
}

// value returns what a ConfigMap of setData has.
func (c *shownConsole) value(name, query string) string {
	c.t.Helper()
	_, body := c.get("/api/v1/namespaces/default/configmaps/" + name + query)
	var object corev1.ConfigMap
	harness.Must(c.t, json.Unmarshal([]byte(body), &object))
	return object.Data["value"]
}

// showsThePast reads what the ConfigMap settings is and was at a revision, and what happened to another one.
func (c *shownConsole) showsThePast(early string) {
	c.t.Helper()
	if now, then := c.value("settings", ""), c.value("settings", "?resourceVersionMatch=Exact&resourceVersion="+early); now != "late" || then != "early" {
		c.t.Errorf("now: %q, then: %q", now, then)
	}
	if _, changes := c.get("/apis/history.sqube.io/v1alpha1/changes?fieldSelector=name=gone"); !strings.Contains(changes, `"delete"`) || !strings.Contains(changes, `"create"`) {
		c.t.Errorf("the changes: %s", changes)
	}
}

// ends interrupts it, and checks that it leaves nothing.
func (c *shownConsole) ends() {
	c.t.Helper()
	folders := entries(c.t, c.temporary)
	if len(folders) != 1 {
		c.t.Fatalf("the temporary folder has %v", folders)
	}
	if info, err := os.Stat(filepath.Join(c.temporary, folders[0])); err != nil || info.Mode().Perm() != 0o700 {
		c.t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	harness.Must(c.t, c.Signal(syscall.SIGINT))
	if code := c.Code(c.t); code != 0 {
		c.t.Errorf("interrupted, it ends with %d", code)
	}
	if left := entries(c.t, c.temporary); len(left) > 0 {
		c.t.Errorf("it leaves %v", left)
	}
}

// TestConsoleOfAFile shows a backup and an archive, without a server, and serves copies of them.
func TestConsoleOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys, archive, backup := filepath.Join(dir, "encryption.yaml"), filepath.Join(dir, "archive"), filepath.Join(t.TempDir(), "backup.db")
	harness.Must(t, os.WriteFile(keys, []byte(encryptSecrets), 0o600))
	encrypted := []string{"--encryption-provider-config", keys}
	s := serve(t, append([]string{"--archive", archive, "--retention", "1s", "--compact-interval", "100ms"}, encrypted...))
	c := client(t, s.Kubeconfig)
	early := setData(t, c, "settings", "early")
	setData(t, c, "settings", "late")
	setData(t, c, "gone", "with the wind")
	harness.Must(t, c.CoreV1().ConfigMaps("default").Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	_, err := c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "1234"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	calls := &kubeletCalls{}
	calls.prepare(t, c)
	succeeds(t, []string{"backup", backup, "--data-dir", s.DataDir})
	harness.Must(t, s.Signal(syscall.SIGTERM))
	s.Code(t) // then all is in the archive
	before, err := os.ReadFile(backup)
	harness.Must(t, err)

	shown := showConsole(t, append([]string{backup}, encrypted...)...)
	shown.showsThePast(early)
	if code, secret := shown.get("/api/v1/namespaces/default/secrets/door"); code != http.StatusOK || !strings.Contains(secret, "MTIzNA==") {
		t.Errorf("a Secret: %d %s", code, secret)
	}
	shown.refusesWrites(backup)
	if code, log := shown.get("/api/v1/namespaces/default/pods/runs/log"); code < 500 || !strings.Contains(log, "a copy of "+backup) || calls.Load() > 0 {
		t.Errorf("the log of a Pod: %d %s, with %d calls of its kubelet", code, log, calls.Load())
	}
	shown.ends()
	if after, err := os.ReadFile(backup); err != nil || sha256.Sum256(after) != sha256.Sum256(before) {
		t.Errorf("the backup was changed: %v", err)
	}
	if beside := entries(t, filepath.Dir(backup)); len(beside) != 1 {
		t.Errorf("beside the backup are %v", beside)
	}

	archived := showConsole(t, append([]string{archive}, encrypted...)...)
	archived.showsThePast(early)
	archived.ends()

	servesCopies(t, backup, archive, encrypted, calls)

	refuses(t, "--encryption-provider-config", []string{"console", backup})
	text := filepath.Join(dir, "text")
	harness.Must(t, os.WriteFile(text, []byte("no backup"), 0o600))
	refuses(t, text+": this file is not an SQLite database", []string{"console", text})
	refuses(t, "no such file or directory", []string{"console", filepath.Join(dir, "nothing")})
	refuses(t, dir+" holds no backup", []string{"console", dir})
	half := filepath.Join(dir, "half")
	harness.Must(t, os.WriteFile(half, before[:len(before)/2], 0o600))
	refuses(t, half+": ", []string{"console", half})
	newer := filepath.Join(dir, "newer.db")
	harness.Must(t, os.WriteFile(newer, before, 0o600))
	db := harness.OpenDatabase(t, harness.Engine{Name: "sqlite", Datastore: "sqlite://" + newer})
	_, err = db.ExecContext(t.Context(), "UPDATE schema_migrations SET version = 1000")
	harness.Must(t, err)
	harness.Must(t, db.Close())
	refuses(t, "it has schema 1000, ", []string{"console", newer})
	refusesCopies(t, backup, newer, text)
}

// refusesWrites tries to write, and finds nothing written afterwards, not by the server itself either.
func (c *shownConsole) refusesWrites(source string) {
	t := c.t
	const newest = `{"apiVersion": "history.sqube.io/v1alpha1", "kind": "Query", "spec": {"sql": "SELECT max(id), count(*) FROM log"}}`
	status := func() string {
		_, body := c.do(http.MethodPost, "/apis/history.sqube.io/v1alpha1/queries", newest)
		var q struct{ Status struct{ Rows [][]any } }
		harness.Must(t, json.Unmarshal([]byte(body), &q))
		return fmt.Sprint(q.Status.Rows)
	}
	before := status()
	want := "this is a copy of " + source + ", which can't be changed"
	for _, write := range [][2]string{
		{"POST", "/api/v1/namespaces/default/configmaps"}, {"PUT", "/api/v1/namespaces/default/configmaps/settings"}, {"PATCH", "/api/v1/namespaces/default/configmaps/settings"},
		{"DELETE", "/api/v1/namespaces/default/configmaps/settings"}, {"POST", "/api/v1/namespaces/default/serviceaccounts/default/token"}, {"POST", "/apis/history.sqube.io/v1alpha1/transactions"},
		{"DELETE", "/apis/history.sqube.io/v1alpha1/namespaces/default/changes?fieldSelector=resource=configmaps,name=settings"},
	} {
		if code, body := c.do(write[0], write[1], "{}"); code != http.StatusMethodNotAllowed || !strings.Contains(body, want) {
			t.Errorf("%v: %d %s", write, code, body)
		}
	}
	undo := `{"apiVersion": "history.sqube.io/v1alpha1", "kind": "Undo", "spec": {"apply": true, "object": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "gone"}}}`
	if code, body := c.do(http.MethodPost, "/apis/history.sqube.io/v1alpha1/undos", undo); code != http.StatusCreated || !strings.Contains(body, `"failed"`) || !strings.Contains(body, want) {
		t.Errorf("an undo: %d %s", code, body)
	}
	if after := status(); after != before {
		t.Errorf("before: %s, afterwards: %s", before, after)
	}
}

// kubeletCalls counts the connections to a node.
type kubeletCalls struct{ atomic.Int64 }

// prepare makes a node where they are counted, and a Pod on it.
func (k *kubeletCalls) prepare(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			k.Add(1)
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	node, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "counts"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(listener.Addr().(*net.TCPAddr).Port)
	_, err = c.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	harness.Must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "runs"}, Spec: corev1.PodSpec{NodeName: "counts", Containers: []corev1.Container{{Name: "runs", Image: "runs"}}}}
	harness.Retry(t, "a pod can be created, once its service account exists", func() error {
		_, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
}
