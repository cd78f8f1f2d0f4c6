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

// PgBouncer starts a pooler in transaction mode in front of the database that the DSN names, and returns the DSN through
// it. It takes the server's few sessions in turn, so that a client hardly gets the same one twice. It ends with the test.
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
		// Debian has it where only root looks.
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return "", fmt.Errorf("pgbouncer is missing; install it:\n    test/tools/need pgbouncer pgbouncer")
		}
	}
	server, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	password, _ := server.User.Password()
	port, err := FreePort()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "sqube-pgbouncer-")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
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
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return "", err
	}
	as, err := ordinaryUser()
	if err != nil {
		return "", err
	}
	if as != nil {
		for _, path := range []string{dir, file} {
			if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
				return "", fmt.Errorf("hand the configuration to an ordinary user: %w", err)
			}
		}
	}
	var log strings.Builder
	cmd := exec.Command(program, file)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	keeper, err := NewKeeper("")
	if err != nil {
		return "", err
	}
	process, err := StartProcess(cmd, keeper)
	t.Cleanup(func() {
		if err := errors.Join(process.End(syscall.SIGKILL), keeper.Dismiss()); err != nil {
			t.Errorf("end PgBouncer: %v", err)
		}
		if t.Failed() {
			t.Logf("the end of PgBouncer's log:\n%s", log.String()[max(0, log.Len()-2000):])
		}
	})
	if err != nil {
		return "", err
	}
	through := *server
	through.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, through.String())
		if err == nil {
			return through.String(), conn.Close(ctx)
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("pgbouncer was not ready within %s: %w", startTimeout, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
