package crash

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// endsAtOnce is how long a process with nothing to wait for may take to end, on a busy machine. It is less than the time for which
// a server waits for running requests, 30 s.
const endsAtOnce = 20 * time.Second

// TestStopFinishesRunningRequests stops the server while the body of a request is being sent. The request is completed and
// acknowledged, and its object is there after the next start.
func TestStopFinishesRunningRequests(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		request := startRequest(t, ctx, server, "slow")
		if err := syscall.Kill(server.Pid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		waitRefusing(t, ctx, server)
		if err := request.finish(); err != nil {
			t.Errorf("a request running when the server was stopped: %v", err)
		}
		waitGone(t, server.Pid())
		server.Kill(t) // it has ended, but the harness does not know that
		server.Start(t)
		client := httpClient(t, server)
		response, err := client.Get(server.URL + "/api/v1/namespaces/default/configmaps/slow")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("the written object: %s", response.Status)
		}
	})
}

// TestSecondSignalEndsAtOnce signals twice a server that waits for a running request.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	server := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t)})
	request := startRequest(t, ctx, server, "never")
	defer request.abandon()
	if err := syscall.Kill(server.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitRefusing(t, ctx, server)
	if err := syscall.Kill(server.Pid(), 0); err != nil {
		t.Fatalf("the server did not wait for a running request: %v", err)
	}
	if err := syscall.Kill(server.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitGone(t, server.Pid())
}

// TestSecondServerRefusesTheFile starts a second server on the file of a running one: it must exit at once with a line that
// names the file and says what to do, and not affect the first one.
func TestSecondServerRefusesTheFile(t *testing.T) {
	datastore := harness.SQLite(t)
	server := sqube.Start(t, sqube.Options{Datastore: datastore})
	port, err := harness.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	second := exec.CommandContext(ctx, sqube.Binary(t), "serve",
		"--data-dir", t.TempDir(), "--datastore", datastore, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port))
	out, err := second.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("the second server did not fail: %v\n%s", err, out)
	}
	message := strings.TrimSpace(string(out))
	if strings.Count(message, "\n") > 0 || !strings.Contains(message, filepath.Base(strings.TrimPrefix(datastore, "sqlite://"))) {
		t.Errorf("the second server's error does not name the file in one line:\n%s", message)
	}
	response, err := httpClient(t, server).Get(server.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the first server is no longer ready: %s", response.Status)
	}
}

// runningRequest is a create whose body is being sent.
type runningRequest struct {
	body   *io.PipeWriter
	rest   []byte
	answer chan error
}

// startRequest sends the head of a create and part of its body, and returns once the server is handling the request, as shown
// by its request for the body.
func startRequest(t *testing.T, ctx context.Context, server *sqube.Server, name string) *runningRequest {
	t.Helper()
	body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`)
	read, write := io.Pipe()
	r := &runningRequest{body: write, rest: body[10:], answer: make(chan error, 1)}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/api/v1/namespaces/default/configmaps", read)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue")
	client := httpClient(t, server)
	go func() {
		response, err := client.Do(request)
		if err == nil {
			answer := new(bytes.Buffer)
			_, err = answer.ReadFrom(response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode != http.StatusCreated {
				err = errors.New(response.Status + " " + answer.String())
			}
		}
		r.answer <- err
	}()
	// The pipe accepts the bytes when the client sends them, after the server's 100 Continue.
	if _, err := write.Write(body[:10]); err != nil {
		t.Fatal(err)
	}
	return r
}

// finish sends the rest and returns the result of the request.
func (r *runningRequest) finish() error {
	_, err := r.body.Write(r.rest)
	return errors.Join(err, r.body.Close(), <-r.answer)
}

// abandon aborts a request that will get no response.
func (r *runningRequest) abandon() {
	r.body.CloseWithError(io.ErrUnexpectedEOF)
	<-r.answer
}

// httpClient returns an administrator's client whose transport waits for the server to request the body.
func httpClient(t *testing.T, server *sqube.Server) *http.Client {
	t.Helper()
	config := server.Config(t)
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, ExpectContinueTimeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	authenticated, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: authenticated}
}

// waitRefusing waits until a signalled server accepts no new connections or is not ready.
func waitRefusing(t *testing.T, ctx context.Context, server *sqube.Server) {
	t.Helper()
	for {
		client := httpClient(t, server)
		response, err := client.Get(server.URL + "/readyz")
		if err != nil {
			return
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("the server is still ready")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// waitGone waits until the process has ended.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(endsAtOnce)
	for syscall.Kill(pid, 0) == nil {
		select {
		case <-deadline:
			t.Fatalf("the server is still running after %s", endsAtOnce)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
