package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// initialize creates the cluster. Text sorts by the rules of English if the version can do that (15 and later), so that a query
// that relies on the database's collation instead of its own fails here and not at a user's.
func (s *PostgresServer) initialize() error {
	passwordFile := filepath.Join(s.dir, "password")
	if err := os.WriteFile(passwordFile, []byte(s.password), 0o600); err != nil {
		return err
	}
	if err := s.handOver(s.dir, passwordFile); err != nil {
		return err
	}
	args := []string{
		"-D", s.dataDir(), "-U", postgresUser, "--pwfile", passwordFile,
		"--auth", "md5", // of a password that cannot be guessed; scram-sha-256 costs each connection milliseconds
		"--encoding", "UTF8", "--locale", "C",
		"--no-sync", // a crash now loses only an unused cluster
	}
	if major, err := majorVersion(s.bin); err != nil {
		return err
	} else if major >= 15 {
		args = append(args, "--locale-provider", "icu", "--icu-locale", "en-US")
	}
	if out, err := s.command("initdb", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// handOver gives the files to the user whom the cluster runs as.
func (s *PostgresServer) handOver(paths ...string) error {
	if s.as == nil {
		return nil
	}
	for _, path := range paths {
		if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return fmt.Errorf("handing the cluster to an ordinary user: %w", err)
		}
	}
	return nil
}

// command prepares one of Postgres' programs, like anyCommand.
func (s *PostgresServer) command(program string, args ...string) *exec.Cmd {
	return s.anyCommand(filepath.Join(s.bin, program), args...)
}

// anyCommand prepares a program that runs as the cluster's user in its own process group, so that control-C in the terminal
// only reaches the tests.
func (s *PostgresServer) anyCommand(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} // without the user's PGPORT etc.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.as}
	return cmd
}

// OrdinaryUser returns the user for Postgres if the tests run as root, which initdb refuses: postgres, which the package
// creates, or nobody. It returns nil if the tests run as an ordinary user.
func OrdinaryUser() (*syscall.Credential, error) {
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
