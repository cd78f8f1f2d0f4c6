package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresUser is the superuser of the servers that the harness starts.
const postgresUser = "sqube"

// startTimeout limits the start of a server, including crash recovery, on a busy machine.
const startTimeout = 2 * time.Minute

// PostgresServer is a throwaway Postgres server: a cluster in a temporary directory and the process that serves it. Its address
// does not change when it is restarted. Its methods are not safe for concurrent use.
type PostgresServer struct {
	bin      string // directory of initdb and postgres
	dir      string // removed at the end
	port     int
	password string
	as       *syscall.Credential // the ordinary user to run as; nil if the tests themselves run as one
	keeper   *Keeper
	prepare  func(*exec.Cmd) // changes the command before each start; may be nil

	process *Process // started last
}

// NewPostgresServer starts a server for a single test, which may stop, kill and start it; it is stopped when the test ends. It
// does not use SQUBE_TEST_POSTGRES, since that server must not be stopped.
func NewPostgresServer(t testing.TB) *PostgresServer {
	t.Helper()
	return NewFaultyPostgresServer(t, nil)
}

// NewFaultyPostgresServer is NewPostgresServer with a function that changes the command before each start: see
// test/faults.
func NewFaultyPostgresServer(t testing.TB, prepare func(*exec.Cmd)) *PostgresServer {
	t.Helper()
	server, err := startPostgres(prepare)
	if err != nil {
		t.Fatalf("no Postgres to test on: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("stopping Postgres: %v", err)
		}
	})
	return server
}

// StartPostgres creates a cluster and starts it. Close stops it; without Close, it is stopped when this process ends, even if
// that is killed.
func StartPostgres() (*PostgresServer, error) { return startPostgres(nil) }

func startPostgres(prepare func(*exec.Cmd)) (*PostgresServer, error) {
	return newPostgres(prepare, (*PostgresServer).initialize)
}

// newPostgres starts a server on the cluster that initialize creates.
func newPostgres(prepare func(*exec.Cmd), initialize func(*PostgresServer) error) (_ *PostgresServer, err error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	as, err := OrdinaryUser()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sqube-postgres-")
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{bin: bin, dir: dir, password: randomHex(16), as: as, prepare: prepare}
	if s.keeper, err = NewKeeper(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := initialize(s); err != nil {
		return nil, err
	}
	if s.port, err = FreePort(); err != nil {
		return nil, err
	}
	return s, s.Start()
}

// DSN returns the address of the server's maintenance database, as a superuser.
func (s *PostgresServer) DSN() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(postgresUser, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Database returns the DSN of a new, empty database, dropped when the test ends; the server must be running then.
func (s *PostgresServer) Database(t testing.TB) string {
	t.Helper()
	return createDatabase(t, s.DSN())
}

// Start starts a stopped or killed server and waits until it answers queries.
func (s *PostgresServer) Start() error {
	if s.process.Runs() {
		return errors.New("postgres is already running")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		if err := s.launch(); err != nil {
			return err
		}
		err := s.waitReady(ctx)
		if !errors.Is(err, errMemoryInUse) || ctx.Err() != nil {
			return err
		}
	}
}

// launch starts the server's process.
func (s *PostgresServer) launch() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := s.command("postgres", append([]string{"-D", s.dataDir(), "-p", strconv.Itoa(s.port)}, settings...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.prepare != nil {
		s.prepare(cmd)
	}
	s.process, err = StartProcess(cmd, s.keeper)
	return err
}

// settings differ from Postgres' defaults only where a throwaway server needs it: it listens only on loopback TCP, uses little
// memory and has connections for many concurrent tests; some tests prepare transactions. Commits are synced to disk as in
// production.
var settings = []string{
	"-c", "listen_addresses=127.0.0.1",
	"-c", "unix_socket_directories=",
	"-c", "max_connections=300",
	"-c", "shared_buffers=64MB",
	"-c", "max_prepared_transactions=2",
}

// errMemoryInUse is the error if backends of a killed server have not yet noticed that it is gone.
var errMemoryInUse = errors.New("memory of the previous server is still in use")

// waitReady waits until the server answers a query, which it refuses while it recovers from a crash.
func (s *PostgresServer) waitReady(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, s.DSN())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.process.Exited():
			log := s.logTail()
			if strings.Contains(log, "pre-existing shared memory block") {
				return fmt.Errorf("%w:\n%s", errMemoryInUse, log)
			}
			return fmt.Errorf("postgres ended during its start:\n%s", log)
		case <-ctx.Done():
			return fmt.Errorf("postgres was not ready within %s: %w\n%s", startTimeout, err, s.logTail())
		case <-time.After(20 * time.Millisecond): // there is no notification when it gets ready
		}
	}
}

// Stop stops the server gracefully, which closes its clients' connections, and keeps its data.
func (s *PostgresServer) Stop() error { return s.process.End(syscall.SIGINT) }

// StopAtOnce stops the server and its sessions abruptly, like pg_ctl in mode immediate, and keeps its data.
func (s *PostgresServer) StopAtOnce() error { return s.process.End(syscall.SIGQUIT) }

// Kill kills all processes of the server, like a crash of the machine, and keeps its data.
func (s *PostgresServer) Kill() error {
	// A process that waits for a lock of a dead one never notices that the server is gone.
	children, err := s.children()
	return errors.Join(err, s.process.End(syscall.SIGKILL), signalAll(children, syscall.SIGKILL))
}

// Signal sends a signal, such as SIGSTOP or SIGCONT, to all processes of the server, the first one first.
func (s *PostgresServer) Signal(signal syscall.Signal) error {
	if !s.process.Runs() {
		return errors.New("postgres is not running")
	}
	if err := s.process.Signal(signal); err != nil {
		return err
	}
	children, err := s.children()
	return errors.Join(err, signalAll(children, signal))
}

// children returns the processes of the server other than the first one, none if the server has ended.
func (s *PostgresServer) children() (children []int, err error) {
	if !s.process.Runs() {
		return nil, nil
	}
	pid := s.process.Pid()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
		return nil, fmt.Errorf("finding the processes of postgres: %w", err)
	}
	for _, text := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return children, nil
}

func signalAll(processes []int, signal syscall.Signal) error {
	for _, pid := range processes {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signalling a process of postgres: %w", err)
		}
	}
	return nil
}

// Ended returns a channel that is closed when the process started last has ended.
func (s *PostgresServer) Ended() <-chan struct{} { return s.process.Exited() }

// Log returns the server's log since its last start.
func (s *PostgresServer) Log() ([]byte, error) { return os.ReadFile(s.logFile()) }

// Close stops the server and removes its data. Closing twice is harmless.
func (s *PostgresServer) Close() error {
	// The data is no longer needed, so it need not be flushed.
	return errors.Join(s.StopAtOnce(), s.keeper.Dismiss())
}

func (s *PostgresServer) dataDir() string { return filepath.Join(s.dir, "data") }
func (s *PostgresServer) logFile() string { return filepath.Join(s.dir, "log") }

// logTail returns the last lines of the server's log, for an error message.
func (s *PostgresServer) logTail() string {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
