package sqube

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

const (
	// readyTimeout limits a start on a busy machine; on an idle one, it takes less than a second.
	readyTimeout = time.Minute
	// drainTimeout limits a graceful stop.
	drainTimeout = 30 * time.Second
	// logLines is how much of the server's log a failed test shows.
	logLines = 100
)

// Options describe how to run a server.
type Options struct {
	// Datastore is the --datastore: see harness.Engine.
	Datastore string
	// DataDir is the --data-dir; by default one that is removed when the test ends.
	DataDir string
	// Address and Port are where it listens; by default 127.0.0.1 and a free port.
	Address string
	Port    int
	// Args are additional flags of `sqube serve`.
	Args []string
	// Env are additional environment variables, as "NAME=value".
	Env []string
	// Binary is the sqube to run; by default the one to test.
	Binary string
	// Prepare changes the command before each start: see test/faults.
	Prepare func(*exec.Cmd)
}

// Server is a sqube process and its state. Its address does not change when it is restarted. Its methods are not safe for
// concurrent use, except those that only read.
type Server struct {
	// URL is the server's address, https://ADDRESS:PORT.
	URL string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string

	binary  string
	args    []string
	env     []string
	prepare func(*exec.Cmd)
	log     string
	keeper  *harness.Keeper

	process *harness.Process // started last
}

// Start runs a server and waits until it is ready. It is stopped when the test ends; if the test has failed, its output gets
// the end of the server's log.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := Launch(t, o)
	s.WaitReady(t)
	return s
}

// Launch is Start without the wait.
func Launch(t testing.TB, o Options) *Server {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	var err error
	if o.Address == "" {
		o.Address = "127.0.0.1"
	}
	if o.Port == 0 {
		if o.Port, err = harness.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	if o.Binary == "" {
		o.Binary = Binary(t)
	}
	s := &Server{
		URL:        "https://" + net.JoinHostPort(o.Address, strconv.Itoa(o.Port)),
		Kubeconfig: filepath.Join(o.DataDir, "admin.kubeconfig"),
		binary:     o.Binary,
		args: append([]string{"serve",
			"--data-dir", o.DataDir,
			"--datastore", o.Datastore,
			"--bind-address", o.Address,
			"--secure-port", strconv.Itoa(o.Port),
		}, o.Args...),
		env:     append(os.Environ(), o.Env...),
		prepare: o.Prepare,
		log:     filepath.Join(t.TempDir(), "log"),
	}
	if s.keeper, err = harness.NewKeeper(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of sqube's log:\n%s", s.logTail())
		}
		if err := errors.Join(s.process.End(syscall.SIGKILL), s.keeper.Dismiss()); err != nil {
			t.Errorf("stopping sqube: %v", err)
		}
	})
	if err := s.launch(); err != nil {
		t.Fatalf("starting sqube: %v", err)
	}
	return s
}

// Start starts a stopped or killed server on the same state, and waits until it is ready.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.launch(); err != nil {
		t.Fatalf("starting sqube: %v", err)
	}
	s.WaitReady(t)
}

// WaitReady waits until the server is ready.
func (s *Server) WaitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	if err := s.waitReady(ctx); err != nil {
		t.Fatalf("sqube did not get ready: %v", err)
	}
}

// Stop stops the server with SIGTERM, and waits until it has ended. It fails the test if that takes too long or the server ends
// with an error.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if !s.process.Runs() {
		t.Fatal("sqube is not running")
	}
	harness.Must(t, s.process.Signal(syscall.SIGTERM))
	select {
	case <-s.process.Exited():
	case <-time.After(drainTimeout):
		t.Fatalf("sqube is still running %s after SIGTERM", drainTimeout)
	}
	if err := s.process.Wait(); err != nil {
		t.Fatalf("sqube ended with an error after SIGTERM: %v", err)
	}
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	harness.Must(t, s.process.End(syscall.SIGKILL))
}

// Relaunch starts a server that has ended, for any reason, on the same state. It does not wait.
func (s *Server) Relaunch() error { return s.launch() }

// Ended returns a channel that is closed when the process started last has ended.
func (s *Server) Ended() <-chan struct{} { return s.process.Exited() }

// Config returns a client configuration of the administrator.
func (s *Server) Config(t testing.TB) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	harness.Must(t, err)
	return config
}

// Pid returns the process id of the server, which must be running.
func (s *Server) Pid() int { return s.process.Pid() }

// launch starts the process. Its log continues over all starts.
func (s *Server) launch() error {
	if s.process.Runs() {
		return errors.New("it is already running")
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(s.binary, s.args...)
	cmd.Env = s.env
	cmd.Stdout, cmd.Stderr = log, log
	if s.prepare != nil {
		s.prepare(cmd)
	}
	s.process, err = harness.StartProcess(cmd, s.keeper)
	return err
}

// waitReady polls /readyz until it returns 200. It does so as the administrator, since --anonymous-auth=false may be set.
func (s *Server) waitReady(ctx context.Context) error {
	// The server's certificate does not matter here, and at the first start there are no keys yet.
	config := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: s.administrator}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/readyz returned %s", response.Status)
		}
		select {
		case <-s.process.Exited():
			return fmt.Errorf("it ended: %w", s.process.Wait())
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond): // it can only be polled
		}
	}
}

// administrator returns the certificate in the administrator's kubeconfig.
func (s *Server) administrator(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err == nil {
		err = rest.LoadTLSFiles(config)
	}
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	return &pair, err
}

// Output returns what the server has written so far to standard output and standard error, over all starts.
func (s *Server) Output(t testing.TB) []byte {
	t.Helper()
	output, err := os.ReadFile(s.log)
	harness.Must(t, err)
	return output
}

// Logged waits until the server's log, since its first start, has the text.
func (s *Server) Logged(t testing.TB, text string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%q is logged", text), func() bool { return bytes.Contains(s.Output(t), []byte(text)) })
}

// logTail returns the last lines that the server has written.
func (s *Server) logTail() string {
	log, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}
