package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sqube/sqube/server/wholefile"
)

const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

// FileError is a problem with a file, and what to do about it.
type FileError struct {
	Path string
	Err  error
	// Hint is how to fix it.
	Hint string
}

func (e *FileError) Error() string { return fmt.Sprintf("%s: %v; %s", e.Path, e.Err, e.Hint) }

func (e *FileError) Unwrap() error { return e.Err }

const hintAccess = "make the data directory and its contents readable and writable for the user that runs sqube"

// writeFile replaces path with data so that a reader finds the old content or the new, also after a power failure.
func writeFile(path string, data []byte) error {
	if inMemory(path) {
		return os.WriteFile(path, data, fileMode)
	}
	err := wholefile.Replace(path, fileMode, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return &FileError{path, err, hintAccess}
	}
	return nil
}

// removeFile removes path durably, if it exists.
func removeFile(path string) error {
	if inMemory(path) {
		return os.Truncate(path, 0)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &FileError{path, err, hintAccess}
	}
	return wholefile.SyncFolder(filepath.Dir(path))
}

// readFile returns path's content, or nil if there is no such file.
func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 && inMemory(path) {
		return nil, nil
	}
	if err != nil {
		return nil, &FileError{path, err, hintAccess}
	}
	return data, nil
}

// readPrivate is readFile for secrets: it makes the file private.
func readPrivate(path string) ([]byte, error) {
	data, err := readFile(path)
	if err != nil || data == nil {
		return nil, err
	}
	return data, restrict(path, fileMode)
}

// restrict removes the permissions of group and others to a file.
func restrict(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return &FileError{path, err, hintAccess}
	}
	if info.Mode().Perm()&^mode == 0 {
		return nil
	}
	if err := os.Chmod(path, mode); err != nil {
		return &FileError{path, fmt.Errorf("it holds secrets but others may open it: %w", err),
			fmt.Sprintf("run: chmod %o %s", mode, path)}
	}
	return nil
}

// makeDir creates dir and its parents; dir itself becomes private.
func makeDir(dir string) error {
	if err := wholefile.MakeFolder(dir, dirMode); err != nil {
		return &FileError{dir, err, hintAccess}
	}
	return restrict(dir, dirMode)
}

// restrictFiles removes the permissions of group and others to the files in dir. It skips symbolic links, whose targets may have
// other uses, and ignores errors for certificates, which are not secret.
func restrictFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return &FileError{dir, err, hintAccess}
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		if err := restrict(filepath.Join(dir, entry.Name()), fileMode); err != nil && filepath.Ext(entry.Name()) == ".key" {
			return err
		}
	}
	return nil
}

// restrictDataDir removes the permissions of group and others to the data directory, if all names in it begin with one of own. A
// folder with other files, such as /tmp, has other uses too.
func restrictDataDir(dir string, own ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return &FileError{dir, err, hintAccess}
	}
	for _, entry := range entries {
		begins := func(prefix string) bool { return strings.HasPrefix(strings.TrimPrefix(entry.Name(), "."), prefix) }
		if !slices.ContainsFunc(own, begins) {
			return nil
		}
	}
	err = restrict(dir, dirMode)
	if errors.Is(err, fs.ErrPermission) {
		return nil // it belongs to another user, like a Pod's volume; its files are private
	}
	return err
}

// lock locks dir until unlock is called. It waits for a process that holds the lock. The kernel releases the lock when the process
// ends, so it can't become stale.
func lock(dir string) (unlock func() error, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, &FileError{dir, err, hintAccess}
	}
	for {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(&FileError{dir, fmt.Errorf("locking: %w", err), hintAccess}, d.Close())
	}
	return d.Close, nil
}
