package sqube

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

// readyTimeout limits a start on a busy machine; on an idle one, it takes less than a second.
const readyTimeout = time.Minute

// Options describe how to run a server.
type Options struct {
	// Datastore is the --datastore, if Args don't have it: see harness.Engine.
	Datastore string
	// DataDir is the --data-dir; by default a new one that is removed when the test ends.
	DataDir string
	// Address and Port are where it listens; by default 127.0.0.1 and a free port.
	Address string
	Port    int
	// Command is the one that serves: serve by default, or mirror.
	Command string
	// Args are its additional flags.
	Args []string
	// Env are additional environment variables, as "NAME=value".
	Env []string
	// Binary is the sqube to run; by default the one to test.
	Binary string
	// Prepare changes the command before each start: see test/faults.
	Prepare func(*exec.Cmd)
}

// Server is a process that serves, and its state. Its address does not change when it is restarted.
type Server struct {
	*Process

	// URL is the server's address, https://ADDRESS:PORT.
	URL  string
	Port int
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// DataDir is the --data-dir.
	DataDir string
	// Datastore is the --datastore, also if it is the default.
	Datastore string

	database *sql.DB // opened when it is needed
}

// Start runs a server and waits until it is ready. It is stopped when the test ends; if the test has failed, its output gets
// the end of the server's.
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
		o.DataDir = filepath.Join(t.TempDir(), "data")
	}
	if o.Address == "" {
		o.Address = "127.0.0.1"
	}
	if o.Port == 0 {
		var err error
		o.Port, err = harness.FreePort()
		harness.Must(t, err)
	}
	if o.Binary == "" {
		o.Binary = Binary(t)
	}
	if o.Command == "" {
		o.Command = "serve"
	}
	args := []string{o.Command, "--data-dir", o.DataDir, "--bind-address", o.Address, "--secure-port", strconv.Itoa(o.Port)}
	if o.Datastore != "" {
		args = append(args, "--datastore", o.Datastore)
	}
	args = append(args, o.Args...)
	prepare := []func(*exec.Cmd){func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, o.Env...) }}
	if o.Prepare != nil {
		prepare = append(prepare, o.Prepare)
	}
	datastore := "sqlite://" + filepath.Join(o.DataDir, "sqube.db")
	if i := slices.Index(args, "--datastore"); i > 0 {
		datastore = args[i+1]
	}
	return &Server{
		URL:        "https://" + net.JoinHostPort(o.Address, strconv.Itoa(o.Port)),
		Port:       o.Port,
		Kubeconfig: filepath.Join(o.DataDir, "admin.kubeconfig"),
		DataDir:    o.DataDir,
		Datastore:  datastore,
		Process:    start(t, o.Binary, args, prepare),
	}
}

// Start starts a stopped or killed server on the same state, and waits until it is ready.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.Relaunch(); err != nil {
		t.Fatalf("starting sqube: %v", err)
	}
	s.WaitReady(t)
}

// WaitReady waits until the server is ready.
func (s *Server) WaitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		t.Fatalf("sqube did not get ready: %v", err)
	}
}

// Config returns a client configuration of the administrator.
func (s *Server) Config(t testing.TB) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	harness.Must(t, err)
	return config
}

// Ready polls /readyz until it returns 200. It does so as the administrator, since --anonymous-auth=false may be set.
func (s *Server) Ready(ctx context.Context) error {
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
		case <-s.Exited():
			return fmt.Errorf("it ended: %w", s.Wait())
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

// Compacted returns up to which revision a server has compacted its database. Its metrics say this, too, but take 50 ms of CPU.
func (s *Server) Compacted(t testing.TB) (revision int) {
	t.Helper()
	if s.database == nil {
		s.database = harness.OpenDatabase(t, harness.Engine{Datastore: s.Datastore})
	}
	harness.Must(t, s.database.QueryRow("SELECT compacted FROM counter").Scan(&revision))
	return revision
}
