package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Standby starts another server that follows this one, from a copy of it. The test may stop, kill, start and promote it
// separately. It is stopped when the test ends.
func (s *PostgresServer) Standby(t testing.TB) *PostgresServer {
	t.Helper()
	standby, err := newPostgres(nil, func(standby *PostgresServer) error { return standby.follow(s) })
	if err != nil {
		t.Fatalf("a standby: %v", err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Errorf("stopping the standby: %v", err)
		}
	})
	return standby
}

// follow makes the cluster a copy of the primary's that then follows it.
func (s *PostgresServer) follow(primary *PostgresServer) error {
	s.password = primary.password
	if err := errors.Join(s.handOver(s.dir), primary.copyTo(s.dataDir())); err != nil {
		return err
	}
	return errors.Join(s.configure("primary_conninfo = '"+primary.DSN()+"'"), s.write("standby.signal", ""))
}

// copyTo makes a base backup of the running server in a new directory. It does not use pg_basebackup, which the packages of
// findVersion lack, and leaves out the log, which a primary or an archive has.
func (s *PostgresServer) copyTo(dir string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN()) // closing it would end the backup
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	major, err := majorVersion(s.bin)
	if err != nil {
		return err
	}
	start, stop := "pg_backup_start('copy', true)", "pg_backup_stop(false)"
	if major < 15 {
		start, stop = "pg_start_backup('copy', true, false)", "pg_stop_backup(false, false)"
	}
	if _, err := conn.Exec(ctx, "SELECT "+start); err != nil {
		return err
	}
	// tar returns 1 if a file has changed or disappeared meanwhile, which the log covers.
	const script = `set -eo pipefail
mkdir -m 700 "$2"
{ tar --create --directory="$1" --exclude=./postmaster.* --exclude=./pg_wal/* --exclude=./pg_replslot/* --exclude=./pg_stat_tmp/* . || [ $? = 1 ]; } |
	tar --extract --directory="$2"
mkdir "$2/pg_wal/archive_status"`
	if out, err := s.anyCommand("bash", "-c", script, "copy", s.dataDir(), dir).CombinedOutput(); err != nil {
		return fmt.Errorf("copying the files: %w\n%s", err, out)
	}
	var label string
	if err := conn.QueryRow(ctx, "SELECT labelfile FROM "+stop).Scan(&label); err != nil {
		return err
	}
	path := filepath.Join(dir, "backup_label")
	return errors.Join(os.WriteFile(path, []byte(label), 0o600), s.handOver(path))
}

// configure adds lines to the settings, for the next start.
func (s *PostgresServer) configure(lines ...string) error {
	file, err := os.OpenFile(filepath.Join(s.dataDir(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, file.Close())
}

// write writes a file in the data directory.
func (s *PostgresServer) write(name, content string) error {
	path := filepath.Join(s.dataDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	return s.handOver(path)
}
