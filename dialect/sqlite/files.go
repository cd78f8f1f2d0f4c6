package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sqube/sqube/server/wholefile"
)

// The modes of new files and folders: a database contains secrets.
const (
	fileMode   fs.FileMode = 0o600
	folderMode fs.FileMode = 0o700
)

// maxLinks is how many symbolic links are followed, as on Linux.
const maxLinks = 40

// resolve returns the absolute path of the file at path, which need not exist, without symbolic links. SQLite keeps the
// write-ahead log next to it.
func resolve(path string) (string, error) {
	path, err := absolute(path)
	if err != nil {
		return "", err
	}
	for range maxLinks {
		folder, name := filepath.Split(path)
		real, err := filepath.EvalSymlinks(folder)
		if errors.Is(err, fs.ErrNotExist) {
			return filepath.Clean(path), nil
		}
		if err != nil {
			return "", err
		}
		path = filepath.Join(real, name)
		target, err := os.Readlink(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EINVAL): // no file, or not a link
			return path, nil
		case err != nil:
			return "", err
		case !filepath.IsAbs(target):
			target = real + "/" + target
		}
		path = target
	}
	return "", &os.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
}

// absolute returns the absolute form of path, with its symbolic links.
func absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	wd, err := os.Getwd()
	return wd + "/" + path, err // unlike filepath.Join, this follows the link in link/../file
}

// checkFile fails if path is not a file, or if there is a write-ahead log without its database. It succeeds if neither exists.
func checkFile(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkWAL(path, 0)
	case err != nil:
		return err
	case info.IsDir():
		return &os.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return errors.New("this is not a regular file: give another path")
	}
	return checkWAL(path, info.Size())
}

// checkOneName fails if the file at path has another path too: its write-ahead log, with the last commits, is next to one of
// them, and a process that opens the other would miss those commits.
func checkOneName(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return errors.New("this file has a second name (a hard link), and its last commits are in the write-ahead log beside one of the two: remove the name that sqube has not served")
	}
	mounted, err := isMount(path)
	if err == nil && mounted {
		err = errors.New("this file is mounted by itself, without the write-ahead log that has its last commits: mount its folder")
	}
	return err
}

// checkWAL fails if a write-ahead log exists but its database, of size bytes, is missing or empty. SQLite would create an empty
// database and remove the log with its commits.
func checkWAL(path string, size int64) error {
	if size > 0 {
		return nil
	}
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return fmt.Errorf("this file is missing or empty, but its write-ahead log %s is there, with the last commits: put the file back, or move the log away too", path+"-wal")
	}
	return nil
}

// suffixes are those of a database's files.
var suffixes = []string{"", "-wal", "-shm", "-journal"}

// openFile opens the file at path. If flag lets it create the file, that is private, and gets the owner of like.
func openFile(path string, flag int, like string) (*os.File, error) {
	_, missing := os.Lstat(path)
	f, err := os.OpenFile(path, flag, fileMode)
	if err != nil || missing == nil {
		return f, err
	}
	if err := wholefile.Chown(f, like); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// protect makes the files of the database at path accessible to the owner only. An older sqube or another program may have left
// them open to others.
func protect(path string) error {
	for _, suffix := range append([]string{reserveSuffix, markSuffix}, suffixes...) {
		info, err := os.Lstat(path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&^fileMode != 0 {
			err = os.Chmod(path+suffix, fileMode)
		}
		if err != nil {
			return fmt.Errorf("it holds secrets, so only its owner may have access: %w", err)
		}
	}
	return nil
}
