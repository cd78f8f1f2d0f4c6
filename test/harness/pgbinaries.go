package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// installCommand installs the Postgres server on Debian.
const installCommand = "apt-get update && apt-get install --yes --no-install-recommends postgresql"

// findPostgres returns the directory with initdb and postgres, of the version in PG_VERSION if it is set: the one in PATH, else
// the newest of Debian's, else the one that it installs, which needs root. The error contains the command for a user to run.
func findPostgres() (string, error) {
	if major := os.Getenv(VersionVariable); major != "" {
		return findVersion(major)
	}
	if dir := installedPostgres(); dir != "" {
		return dir, nil
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("found no Postgres server in PATH or /usr/lib/postgresql; install it, or set %s to the DSN of one\n    sudo sh -c '%s'",
			PostgresVariable, installCommand)
	}
	if err := installPostgres(); err != nil {
		return "", err
	}
	if dir := installedPostgres(); dir != "" {
		return dir, nil
	}
	return "", fmt.Errorf("the postgresql package is installed, but there is no /usr/lib/postgresql/*/bin/postgres; set %s to the DSN of a server", PostgresVariable)
}

// PostgresPrograms returns the directory with all of Postgres' programs, of the version in PG_VERSION if it is set.
func PostgresPrograms() (string, error) {
	dir, err := findPostgres()
	if err == nil && !isExecutable(filepath.Join(dir, "pg_basebackup")) {
		return "", fmt.Errorf("%s has no pg_basebackup: all of Postgres' programs are needed", dir)
	}
	return dir, err
}

// installedPostgres returns the first directory with Postgres, or "" if there is none.
func installedPostgres() string {
	if dirs := postgresDirs(); len(dirs) > 0 {
		return dirs[0]
	}
	return ""
}

// postgresDirs lists the directories with Postgres, the preferred one first.
func postgresDirs() (dirs []string) {
	var candidates []string
	for _, name := range []string{"initdb", "postgres"} {
		if path, err := exec.LookPath(name); err == nil {
			// A link in /usr/local/bin leads to the directory with the other programs.
			if path, err = filepath.EvalSymlinks(path); err == nil {
				candidates = append(candidates, filepath.Dir(path))
			}
		}
	}
	for _, dir := range append(candidates, debianPostgres()...) {
		if isPostgres(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func isPostgres(dir string) bool {
	return isExecutable(filepath.Join(dir, "initdb")) && isExecutable(filepath.Join(dir, "postgres"))
}

// debianPostgres lists the directories of Debian's packages, the newest version first.
func debianPostgres() []string {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil { // only for a malformed pattern, which this is not
		return nil
	}
	version := func(dir string) int {
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err != nil {
			return 0 // not a version: last
		}
		return n
	}
	sort.Slice(dirs, func(i, j int) bool { return version(dirs[i]) > version(dirs[j]) })
	return dirs
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// installPostgres installs Debian's package. The lock makes concurrent test processes take turns; all but the first then find
// the package installed.
func installPostgres() error {
	unlock, err := lockFile(filepath.Join(os.TempDir(), "sqube-install-postgres.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if installedPostgres() != "" {
		return nil
	}
	fmt.Fprintln(os.Stderr, "harness: installing the Postgres server: "+installCommand)
	cmd := exec.Command("sh", "-c", installCommand)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("installing Postgres: %w\n%s\nrun this yourself, or set %s to the DSN of a server\n    %s",
			err, strings.TrimSpace(string(out)), PostgresVariable, installCommand)
	}
	return nil
}

// lockFile locks a file, which it creates if necessary, and waits for other processes to unlock it first.
func lockFile(name string) (unlock func(), err error) {
	lock, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for another process: %w", err), lock.Close())
	}
	return func() { lock.Close() }, nil // also releases the lock
}
