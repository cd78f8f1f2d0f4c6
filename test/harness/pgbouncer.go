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
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PgBouncer starts a pooler in transaction mode in front of the database at dsn, and returns the DSN through it. It uses the
// server's few sessions in turn, so that a client rarely gets the same one twice. It is stopped when the test ends.
func PgBouncer(t testing.TB, dsn string) string {
	t.Helper()
	pooled, err := startPgBouncer(t, dsn)
	if err != nil {
		t.Fatalf("no PgBouncer to test on: %v", err)
	}
	return pooled
}

func startPgBouncer(t testing.TB, dsn string) (pooled string, err error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		// Debian installs it in a directory that is only in root's PATH.
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return "", errors.New("pgbouncer is missing; install it:\n    test/tools/need pgbouncer pgbouncer")
		}
	}
	server, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	port, err := FreePort()
	if err != nil {
		return "", err
	}
	as, err := OrdinaryUser() // it does not run as root either
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "sqube-pgbouncer-")
	if err != nil {
		return "", err
	}
	keeper, err := NewKeeper(dir)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	var process *Process
	t.Cleanup(func() {
		if err := errors.Join(process.End(syscall.SIGKILL), keeper.Dismiss()); err != nil {
			t.Errorf("stopping PgBouncer: %v", err)
		}
	})
	file, err := configurePgBouncer(dir, server, port, as)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(program, "--quiet", file)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	if process, err = StartProcess(cmd, keeper); err != nil {
		return "", err
	}
	through := *server
	through.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return through.String(), answers(through.String())
}

// configurePgBouncer writes the configuration of a pooler in front of a server. Its clients need no password.
func configurePgBouncer(dir string, server *url.URL, port int, as *syscall.Credential) (file string, err error) {
	password, _ := server.User.Password()
	config := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
server_round_robin = 1
default_pool_size = 8
max_client_conn = 500
`, server.Hostname(), server.Port(), server.User.Username(), password, port)
	file = filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return "", err
	}
	if as == nil {
		return file, nil
	}
	return file, errors.Join(os.Chown(dir, int(as.Uid), int(as.Gid)), os.Chown(file, int(as.Uid), int(as.Gid)))
}

// answers waits until the database at dsn responds.
func answers(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no response within %s: %w", startTimeout, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
