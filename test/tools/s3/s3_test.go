package s3

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// patience limits every wait on a machine that is busy with other tests.
const patience = time.Minute

// store is a store that can be unreachable. It uses TLS like other stores: over plain HTTP the client signs parts in a way that
// the fake does not support.
type store struct {
	place string
	down  atomic.Bool
	parts atomic.Int64 // files uploaded in parts

	hangs, denies atomic.Bool // parts do not end; interrupted uploads can't be listed
	hung          atomic.Int64
	fake          http.Handler
}

func newStore(t *testing.T) *store {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	s := &store{fake: gofakes3.New(backend).Server()}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodPost && r.URL.Query().Has("uploads") {
			s.parts.Add(1)
		}
		if r.Method == http.MethodGet && r.URL.Query().Has("uploads") && s.denies.Load() {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>")
			return
		}
		if r.URL.Query().Has("partNumber") && s.hangs.Load() {
			s.hung.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		s.fake.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	if err := os.WriteFile(authority, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", authority)
	s.place = "s3://backups/clusters/one?endpoint=" + server.URL
	return s
}

// ask sends a request about uploads to the store, and returns its answer.
func (s *store) ask(method, target string) string {
	answer := httptest.NewRecorder()
	s.fake.ServeHTTP(answer, httptest.NewRequest(method, target, nil))
	return answer.Body.String()
}

// process is a run of sqube.
type process struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	output bytes.Buffer
	ended  chan struct{}
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(text)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Getenv("SQUBE_BIN"), args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_REGION=us-east-1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v: SQUBE_BIN must name a program (make e2e)", err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the result is in ProcessState
	}()
	t.Cleanup(func() {
		p.end(t, syscall.SIGKILL)
		if t.Failed() && args[len(args)-1] != "--list" {
			t.Logf("sqube %s\n%s", strings.Join(args, " "), p.text()[max(0, len(p.text())-2000):])
		}
	})
	return p
}

// end sends a signal and waits until the process exits.
func (p *process) end(t *testing.T, signal os.Signal) {
	t.Helper()
	_ = p.cmd.Process.Signal(signal) // it may have exited
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("it still runs after %s", patience)
	}
}

// run runs sqube to its end and returns what it wrote.
func run(t *testing.T, args ...string) (text string, ok bool) {
	t.Helper()
	p := start(t, args...)
	p.end(t, syscall.Signal(0))
	return p.text(), p.cmd.ProcessState.Success()
}

func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	text, ok := run(t, args...)
	if !ok {
		t.Fatalf("sqube %s:\n%s", strings.Join(args, " "), text)
	}
	return text
}

func eventually(t *testing.T, what string, try func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !try() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// unusedPort returns a port on which nothing listens. It is outside the range from which kernels choose, 32768 to 60999, so that
// no connection gets it before the server listens, and even, since the other module's tests use odd ones.
func unusedPort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20000 + 2*mathrand.IntN(5000))
		if free, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			free.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// serve starts a server on a folder and returns a client.
func serve(t *testing.T, dir string) (*process, kubernetes.Interface) {
	t.Helper()
	port := unusedPort(t)
	p := start(t, "serve", "--data-dir", dir, "--bind-address", "127.0.0.1", "--secure-port", port)
	eventually(t, "the server is ready", func() bool { return strings.Contains(p.text(), "msg=ready") })
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return p, kubernetes.NewForConfigOrDie(config)
}

func create(t *testing.T, c kubernetes.Interface, name string, data []byte) (version string) {
	t.Helper()
	made, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: map[string][]byte{"data": data}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.ResourceVersion
}

// await waits until the store has a revision.
func (s *store) await(t *testing.T, revision string) {
	t.Helper()
	eventually(t, "the store has revision "+revision, func() bool {
		text, ok := run(t, "restore", s.place, "--list")
		lines := strings.Split(strings.TrimSpace(text), "\n")
		fields := strings.Fields(lines[len(lines)-1])
		return ok && len(fields) > 3 && fmt.Sprintf("%20s", fields[3]) >= fmt.Sprintf("%20s", revision)
	})
}

// TestFollow backs up a database that is too large for one part to a store that is sometimes unreachable, and restores it after
// the server was killed.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	server, c := serve(t, dir)
	s := newStore(t)
	want := map[string][]byte{}
	for i := range 24 {
		name := fmt.Sprint("large-", i)
		want[name] = make([]byte, 720_000)
		_, _ = rand.Read(want[name])
		create(t, c, name, want[name])
	}
	follow := []string{"backup", "--follow", s.place, "--data-dir", dir, "--sync-interval", "20ms"}
	// One is killed while it uploads. The next removes the parts, but not those of other files.
	s.hangs.Store(true)
	killed := start(t, follow...)
	eventually(t, "a part is being uploaded", func() bool { return s.hung.Load() > 0 })
	killed.end(t, syscall.SIGKILL)
	s.hangs.Store(false)
	others := []string{"/backups/2026-11-21-00000001-abcdef/snapshot.jsonl.gz", "/backups/clusters/one/film"}
	for _, other := range others {
		s.ask(http.MethodPost, other+"?uploads")
	}
	if left := strings.Count(s.ask(http.MethodGet, "/backups?uploads"), "<Key>"); left != len(others)+1 {
		t.Fatalf("%d uploads are unfinished", left)
	}
	first := start(t, follow...)
	put := func(name string) string {
		want[name] = []byte(name)
		return create(t, c, name, want[name])
	}
	s.await(t, put("first"))
	if s.parts.Load() < 2 {
		t.Error("the snapshot was not uploaded in parts")
	}
	if left := strings.Count(s.ask(http.MethodGet, "/backups?uploads"), "<Key>"); left != len(others) || strings.Contains(first.text(), "what interrupted uploads have left") {
		t.Errorf("%d uploads are unfinished, and it prints %s", left, first.text())
	}

	if text, ok := run(t, follow...); ok || !strings.Contains(text, "another sqube backup --follow writes there") {
		t.Errorf("a second one prints %q", text)
	}

	first.end(t, syscall.SIGKILL)
	put("alone")
	s.denies.Store(true)
	second := start(t, follow...)
	s.await(t, put("second"))
	if strings.Count(second.text(), "what interrupted uploads have left may stay") != 1 {
		t.Errorf("where uploads can't be listed, it prints %s", second.text())
	}

	s.down.Store(true)
	last := put("unreachable")
	eventually(t, "the backup fails", func() bool { return strings.Contains(second.text(), "the backup fails; trying again") })
	s.down.Store(false)
	s.await(t, last)

	server.end(t, syscall.SIGKILL)
	second.end(t, syscall.SIGTERM)
	if text := second.text(); !strings.Contains(text, "s3://backups/clusters/one holds sqlite://") || strings.Contains(text, "secret") {
		t.Errorf("it prints %s", text)
	}
	elsewhere := t.TempDir()
	succeeds(t, "restore", s.place, "--data-dir", elsewhere)
	succeeds(t, "check", "--data-dir", elsewhere)
	for _, name := range []string{"large-0", "large-23", "first", "alone", "second", "unreachable"} {
		data := want[name]
		if text := succeeds(t, "show", "configmaps", name, "--data-dir", elsewhere); !strings.Contains(text, base64.StdEncoding.EncodeToString(data)) {
			t.Errorf("%s has changed", name)
		}
	}
	if text, ok := run(t, "restore", strings.Replace(s.place, "backups", "other", 1), "--list"); ok || strings.Count(text, "\n") != 1 {
		t.Errorf("for a missing bucket it prints %q", text)
	}
}
