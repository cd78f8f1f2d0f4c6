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

// startTimeout bounds the start of a server, crash recovery included, on a machine that is busy with a build.
const startTimeout = 2 * time.Minute

// PostgresServer is a throwaway Postgres server: a cluster in a temporary directory and the process that serves it. Its
// address stays the same over stop and start. Its methods are not for concurrent use.
type PostgresServer struct {
	bin      string // directory of initdb and postgres
	dir      string // removed at the end
	port     int
	password string
	as       *syscall.Credential // the ordinary user to run as; nil when the tests themselves run as one
	keeper   *Keeper
	prepare  func(*exec.Cmd) // changes the command before each start; nil for nothing

	process *Process // that was started last
}

// NewPostgresServer starts a server for one test alone, which may stop, kill and start it; it ends with the test. It
// does not use SQUBE_TEST_POSTGRES, since a server that was lent is not to be stopped.
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
			t.Errorf("end Postgres: %v", err)
		}
	})
	return server
}

// StartPostgres makes a cluster and starts it. Close ends it; where nobody calls Close, it ends with this process, and
// also when that is killed.
func StartPostgres() (*PostgresServer, error) { return startPostgres(nil) }

func startPostgres(prepare func(*exec.Cmd)) (*PostgresServer, error) {
	return newPostgres(prepare, (*PostgresServer).initialize)
}

// newPostgres starts a server on the cluster that initialize makes.
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

// Database returns the DSN of a fresh, empty database, dropped when the test ends; the server must run by then.
func (s *PostgresServer) Database(t testing.TB) string {
	t.Helper()
	return createDatabase(t, s.DSN())
}

// Start starts a server that was stopped or killed and waits until it answers queries.
func (s *PostgresServer) Start() error {
	if s.process.Runs() {
		return errors.New("postgres runs already")
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

// settings differ from Postgres' own defaults only where a throwaway server must: it listens on loopback TCP alone, is
// small in memory and has connections for many tests at once; some tests prepare transactions. Commits reach the disk as in production.
var settings = []string{
	"-c", "listen_addresses=127.0.0.1",
	"-c", "unix_socket_directories=",
	"-c", "max_connections=300",
	"-c", "shared_buffers=64MB",
	"-c", "max_prepared_transactions=2",
}

// errMemoryInUse says that backends of a server that was killed have not yet noticed that it is gone.
var errMemoryInUse = errors.New("memory of the server before is still in use")

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
			return fmt.Errorf("postgres ended at its start:\n%s", log)
		case <-ctx.Done():
			return fmt.Errorf("postgres was not ready within %s: %w\n%s", startTimeout, err, s.logTail())
		case <-time.After(20 * time.Millisecond): // the server says nothing when it gets ready
		}
	}
}

// Stop ends the server in an orderly way, which breaks its clients' connections, and keeps its data.
func (s *PostgresServer) Stop() error { return s.process.End(syscall.SIGINT) }

// StopAtOnce ends the server and its sessions without a word to them, as pg_ctl does in mode immediate, and keeps its data.
func (s *PostgresServer) StopAtOnce() error { return s.process.End(syscall.SIGQUIT) }

// Kill ends the server at once, as a crash does, and keeps its data.
func (s *PostgresServer) Kill() error { return s.process.End(syscall.SIGKILL) }

// Signal sends a signal, such as SIGSTOP or SIGCONT, to all processes of the server, the first one first.
func (s *PostgresServer) Signal(signal syscall.Signal) error {
	if !s.process.Runs() {
		return errors.New("postgres does not run")
	}
	pid := s.process.Pid()
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("signal postgres: %w", err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return fmt.Errorf("find the processes of postgres: %w", err)
	}
	for _, text := range strings.Fields(string(children)) {
		child, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := syscall.Kill(child, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal a process of postgres: %w", err)
		}
	}
	return nil
}

// Ended returns a channel that is closed when the process that was started last has ended.
func (s *PostgresServer) Ended() <-chan struct{} { return s.process.Exited() }

// Log returns what the server has written since it was started last.
func (s *PostgresServer) Log() ([]byte, error) { return os.ReadFile(s.logFile()) }

// Close ends the server and removes its data. Closing twice is harmless.
func (s *PostgresServer) Close() error {
	// Nobody needs the data, so it need not be flushed.
	return errors.Join(s.StopAtOnce(), s.keeper.Dismiss())
}

// FreePort returns a TCP port of 127.0.0.1 that nothing listens on at the moment.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
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
