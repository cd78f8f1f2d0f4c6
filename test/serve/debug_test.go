package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestDebugAndDrain reads a server's profiles, changes its log level, and stops it during requests that it waits for.
func TestDebugAndDrain(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "debug.sock")
	stale, err := net.Listen("unix", socket)
	harness.Must(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	harness.Must(t, stale.Close())
	s := serve(t, []string{"--debug-socket-path", socket, "--contention-profiling", "--shutdown-send-retry-after", "--shutdown-watch-termination-grace-period=20s"})
	admin := httpClient(t, s.Kubeconfig, "HTTP/2.0")
	jane := filepath.Join(t.TempDir(), "jane")
	harness.Must(t, os.WriteFile(jane, []byte(succeeds(t, []string{"kubeconfig", "--data-dir", s.DataDir, "--server", s.URL, "--user", "jane"})), 0o600))

	t.Run("profiles are for administrators", func(t *testing.T) {
		for _, path := range []string{"/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/flags/v"} {
			for who, c := range map[string]*http.Client{"anonymous": insecure, "jane": httpClient(t, jane, "HTTP/2.0")} {
				if code, _ := fetch(t, c, http.MethodGet, s.URL+path, ""); code != http.StatusForbidden {
					t.Errorf("%s gets %d from %s", who, code, path)
				}
			}
		}
		if code, text := fetch(t, admin, http.MethodGet, s.URL+"/debug/pprof/goroutine?debug=1", ""); code != http.StatusOK || !strings.Contains(text, "goroutine profile") {
			t.Errorf("an administrator gets %d", code)
		}
		if code, text := fetch(t, admin, http.MethodGet, s.URL+"/debug/pprof/block?debug=1", ""); code != http.StatusOK || !strings.Contains(text, "@") {
			t.Errorf("no contention is recorded: %d\n%s", code, text)
		}
	})
	t.Run("the socket is for the user that runs the server", func(t *testing.T) {
		info, err := os.Stat(socket)
		if err != nil || info.Mode() != os.ModeSocket|0o700 {
			t.Fatalf("mode %v, error %v", info.Mode(), err)
		}
		c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
		t.Cleanup(c.CloseIdleConnections)
		if code, _ := fetch(t, c, http.MethodGet, "http://debug/debug/pprof/heap", ""); code != http.StatusOK {
			t.Errorf("a profile: %d", code)
		}
		if code, _ := fetch(t, c, http.MethodGet, "http://debug/api", ""); code != http.StatusNotFound {
			t.Errorf("the API: %d", code)
		}
	})
	t.Run("the log level can be changed", func(t *testing.T) {
		if code, text := fetch(t, admin, http.MethodPut, s.URL+"/debug/flags/v", "loud"); code != http.StatusBadRequest {
			t.Errorf("a wrong level: %d %s", code, text)
		}
		if strings.Contains(s.Log(t), "level=DEBUG") {
			t.Error("the log has details")
		}
		if code, text := fetch(t, admin, http.MethodPut, s.URL+"/debug/flags/v", "4"); code != http.StatusOK || !strings.Contains(text, "to 4") {
			t.Errorf("%d %s", code, text)
		}
		fetch(t, admin, http.MethodGet, s.URL+"/livez", "")
		if !strings.Contains(s.Log(t), "level=DEBUG") {
			t.Error("the log has no details")
		}
		fetch(t, admin, http.MethodPut, s.URL+"/debug/flags/v", "0")
	})
	t.Run("a stop drains", func(t *testing.T) { drains(t, s) })
}

// drains stops a server while a request and watches run: new requests are told to retry until the request has finished, and the
// watches end one after another, at most 200 per second.
func drains(t *testing.T, s *sqube.Server) {
	const watches = 90
	watcher := httpClient(t, s.Kubeconfig, "HTTP/2.0")
	var mutex sync.Mutex
	var last time.Time
	var ended sync.WaitGroup
	for range watches {
		response, err := watcher.Get(s.URL + "/api/v1/namespaces/kube-public/secrets?watch=true")
		harness.Must(t, err)
		ended.Go(func() {
			defer response.Body.Close()
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Errorf("a watch is cut off: %v", err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			last = time.Now()
		})
	}
	post := startPost(t, httpClient(t, s.Kubeconfig, "HTTP/1.1"), s.URL+"/api/v1/namespaces/default/configmaps", `{"kind":"ConfigMap","apiVersion":"v1",`)
	began := time.Now() // a busy machine may read several ends at once, so the time of the first one says nothing
	harness.Must(t, s.Signal(syscall.SIGTERM))
	harness.Retry(t, "new requests are told to retry", func() error {
		response, err := newConnection().Get(s.URL + "/api")
		if err != nil {
			t.Fatalf("the port is closed: %v", err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
			return errors.New(response.Status)
		}
		return nil
	})
	ended.Wait()
	if took := last.Sub(began); took < watches*time.Second/200/2 {
		t.Errorf("%d watches ended within %s", watches, took)
	}
	if got := post.finish(t, `"metadata":{"name":"late"}}`); got != http.StatusCreated {
		t.Errorf("the request that was running got %d", got)
	}
	if code := s.Code(t); code != 0 {
		t.Errorf("ended with code %d", code)
	}
}

// fetch sends a request and returns the response.
func fetch(t *testing.T, c *http.Client, method, url, body string) (code int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	harness.Must(t, err)
	return harness.Do(t, c, request)
}
