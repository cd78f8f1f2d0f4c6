package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// initialize makes the cluster. Text sorts by the rules of English where the version can (15 and later), so that a
// query which relies on the database's collation instead of naming its own fails here rather than at a user's.
func (s *PostgresServer) initialize() error {
	passwordFile := filepath.Join(s.dir, "password")
	if err := os.WriteFile(passwordFile, []byte(s.password), 0o600); err != nil {
		return err
	}
	if err := s.handOver(s.dir, passwordFile); err != nil {
		return err
	}
	args := []string{
		"-D", s.dataDir(), "-U", postgresUser, "--pwfile", passwordFile, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C",
		"--no-sync", // a machine that goes down now loses a cluster that nobody has used
	}
	if major, err := s.majorVersion(); err != nil {
		return err
	} else if major >= 15 {
		args = append(args, "--locale-provider", "icu", "--icu-locale", "en-US")
	}
	if out, err := s.command("initdb", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// handOver makes the files those of the user whom the cluster runs as.
func (s *PostgresServer) handOver(paths ...string) error {
	if s.as == nil {
		return nil
	}
	for _, path := range paths {
		if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return fmt.Errorf("hand the cluster to an ordinary user: %w", err)
		}
	}
	return nil
}

// follow makes the cluster a copy of the primary's that goes on to follow it.
func (s *PostgresServer) follow(primary *PostgresServer) error {
	if err := s.handOver(s.dir); err != nil {
		return err
	}
	s.password = primary.password
	cmd := s.command("pg_basebackup", "--dbname", primary.DSN(), "--pgdata", s.dataDir(), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	return nil
}

// majorVersion asks the binary: "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)" is 15.
func (s *PostgresServer) majorVersion() (int, error) {
	out, err := s.command("postgres", "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("postgres --version: %w", err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return 0, fmt.Errorf("postgres --version says %q, which names no version", out)
	}
	digits := strings.IndexFunc(fields[2], func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(fields[2])
	}
	major, err := strconv.Atoi(fields[2][:digits])
	if err != nil {
		return 0, fmt.Errorf("postgres --version says %q: %w", out, err)
	}
	return major, nil
}

// command prepares one of Postgres' programs, run as the cluster's user in a process group of its own, so that a
// control-C at the terminal is for the tests.
func (s *PostgresServer) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} // without a PGPORT and the like of the user's own
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.as}
	return cmd
}

// ordinaryUser returns whom to run Postgres as when the tests run as root, whom initdb refuses: postgres, which the
// package makes, or nobody. It returns nil when the tests run as an ordinary user themselves.
func ordinaryUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("Postgres must not run as root, and there is no ordinary user to run it as: %w", errors.Join(errs...))
}
