package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// BaseBackup restarts the server with archiving of its log, and makes a base backup for Restore.
func (s *PostgresServer) BaseBackup(t testing.TB) {
	t.Helper()
	err := errors.Join(
		os.Mkdir(s.archive(), 0o700),
		s.handOver(s.archive()),
		s.configure("archive_mode = on", "archive_command = 'cp %p "+s.archive()+"/%f'"),
		s.Stop(),
	)
	if err == nil {
		err = s.Start()
	}
	if err == nil {
		err = s.copyTo(s.backup())
	}
	if err != nil {
		t.Fatalf("making a base backup: %v", err)
	}
}

// Restore starts another server on the base backup and the archive up to a moment. The original server must have logged
// something later, and been stopped, so that it has archived everything. The new one is stopped when the test ends.
func (s *PostgresServer) Restore(t testing.TB, moment time.Time) *PostgresServer {
	t.Helper()
	restored, err := newPostgres(nil, func(restored *PostgresServer) error {
		restored.password = s.password
		if err := restored.handOver(restored.dir); err != nil {
			return err
		}
		if out, err := restored.anyCommand("cp", "--archive", s.backup(), restored.dataDir()).CombinedOutput(); err != nil {
			return fmt.Errorf("copying the base backup: %w\n%s", err, out)
		}
		return errors.Join(restored.write("recovery.signal", ""), restored.configure(
			"restore_command = 'cp "+s.archive()+"/%f %p'",
			"recovery_target_time = '"+moment.UTC().Format("2006-01-02 15:04:05.999999-07:00")+"'",
			"recovery_target_action = 'promote'",
		))
	})
	if err != nil {
		t.Fatalf("restoring a base backup: %v", err)
	}
	t.Cleanup(func() {
		if err := restored.Close(); err != nil {
			t.Errorf("stopping the restored server: %v", err)
		}
	})
	// It accepts reads before it has reached the moment.
	Eventually(t, "the restored server accepts writes", func() bool {
		db, err := pgx.Connect(t.Context(), restored.DSN())
		if err != nil {
			return false
		}
		defer db.Close(t.Context())
		var recovering bool
		err = db.QueryRow(t.Context(), "select pg_is_in_recovery()").Scan(&recovering)
		return err == nil && !recovering
	})
	return restored
}

func (s *PostgresServer) archive() string { return filepath.Join(s.dir, "archive") }
func (s *PostgresServer) backup() string  { return filepath.Join(s.dir, "backup") }
