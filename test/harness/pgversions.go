package harness

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// VersionVariable is the environment variable with the major version of Postgres to test on, such as 17. If it is not set, any
// version will do.
const VersionVariable = "PG_VERSION"

// The manifest pins a package of each version, with its checksum. The packages have initdb and postgres, but not pg_dump and
// Postgres' other client programs.
var (
	//go:embed npm/package.json
	packageFile []byte
	//go:embed npm/package-lock.json
	packageLock []byte
)

// findVersion returns the directory with initdb and postgres of a major version: the installed one, or else that of the npm
// package, which it downloads.
func findVersion(major string) (string, error) {
	for _, dir := range postgresDirs() {
		if number, err := majorVersion(dir); err == nil && strconv.Itoa(number) == major {
			return dir, nil
		}
	}
	packages, err := downloadVersions()
	if err != nil {
		return "", fmt.Errorf("Postgres %s: %w", major, err)
	}
	dir := filepath.Join(packages, fmt.Sprintf("postgres-%s-%s", major, runtime.GOARCH), "native", "bin")
	if !isPostgres(dir) {
		return "", fmt.Errorf("found no Postgres %s: it is not in PATH, not in /usr/lib/postgresql, and test/harness/npm/package.json has none for %s", major, runtime.GOARCH)
	}
	return dir, nil
}

// downloadVersions installs the packages of all versions for this machine with npm, and returns their directory. It is below
// the one for temporary files, since the user whom Postgres runs as may not be able to read the home directory.
func downloadVersions() (packages string, err error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("sqube-postgres-%d-%x", os.Getuid(), sha256.Sum256(packageLock)))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	if info, err := os.Lstat(dir); err != nil {
		return "", err
	} else if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(owner.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s belongs to someone else", dir)
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	packages = filepath.Join(dir, "node_modules")
	complete := filepath.Join(dir, "complete") // exists once the packages are installed
	if _, err := os.Stat(complete); err == nil {
		return packages, nil
	}
	for name, content := range map[string][]byte{"package.json": packageFile, "package-lock.json": packageLock} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return "", err
		}
	}
	// npm verifies downloads with the checksums. link does what the packages' scripts would do.
	cmd := exec.Command("npm", "ci", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("npm, which downloads it, is not installed")
	} else if err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	lists, err := filepath.Glob(filepath.Join(packages, "*", "native", "pg-symlinks.json"))
	if err != nil {
		return "", err
	}
	for _, list := range lists {
		if err := link(list); err != nil {
			return "", err
		}
	}
	return packages, os.WriteFile(complete, nil, 0o644)
}

// link creates the symbolic links of a package. npm packages can't contain any, so this one lists them.
func link(list string) error {
	var links []struct{ Source, Target string } // the target, and the link
	content, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, &links); err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	root := filepath.Dir(filepath.Dir(list))
	for _, l := range links {
		to, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := os.Symlink(to, filepath.Join(root, l.Target)); err != nil {
			return err
		}
	}
	return nil
}

// majorVersion returns the binary's version: "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)" is 15.
func majorVersion(bin string) (int, error) {
	out, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("postgres --version: %w", err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return 0, fmt.Errorf("postgres --version prints %q, which has no version", out)
	}
	digits := strings.IndexFunc(fields[2], func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(fields[2])
	}
	major, err := strconv.Atoi(fields[2][:digits])
	if err != nil {
		return 0, fmt.Errorf("postgres --version prints %q: %w", out, err)
	}
	return major, nil
}
