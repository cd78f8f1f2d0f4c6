// Package wholefile writes files that are complete or do not exist, even after a power failure.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// private is the mode of the files that Create makes: only their owner may open them.
const private fs.FileMode = 0o600

// unfinished is part of the names of files that are being written. These names begin with a dot.
const unfinished = ".unfinished-"

// Replace calls write to fill a file, and renames it to path. Readers find the old file or the new one. If writing fails, the old
// file is unchanged. What root writes belongs to the owner of the folder, who may be the user of a server.
func Replace(path string, mode fs.FileMode, write func(*os.File) error) (err error) {
	folder, name := filepath.Dir(path), filepath.Base(path)
	f, err := os.CreateTemp(folder, "."+name+unfinished+"*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), allow(f, mode), Chown(f, folder), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncFolder(folder)
}

// MakeFolder creates a folder, and those above it, durably, unless it exists. What root creates belongs to the owner of the folder above.
func MakeFolder(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := MakeFolder(filepath.Dir(path), mode); err != nil {
			return err
		}
		err = os.Mkdir(path, mode)
	}
	if err != nil {
		if info, failed := os.Stat(path); failed == nil && info.IsDir() {
			return nil
		}
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(Chown(f, filepath.Dir(path)), f.Close(), SyncFolder(filepath.Dir(path)))
}

// Chown gives f, if root has created it, the owner of another file or folder.
func Chown(f *os.File, other string) error {
	info, err := os.Stat(other)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if err := f.Chown(int(stat.Uid), int(stat.Gid)); !errors.Is(err, fs.ErrPermission) { // a container's root may not
		return err
	}
	return nil
}

// IsUnfinished reports whether the name is that of a file that is being written, or whose writer was killed.
func IsUnfinished(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, unfinished)
}

// Create calls write to fill a new file, and renames it to path, which must not exist. If writing fails, no file remains. If several
// processes create the same path, one succeeds and the others fail at once.
func Create(path string, write func(*os.File) error) (err error) {
	if err := free(path); err != nil {
		return err
	}
	folder, name := filepath.Dir(path), filepath.Base(path)
	prefix := "." + name + unfinished
	unlock, err := lock(filepath.Join(folder, "."+name+".lock"), path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := RemoveUnfinished(folder, prefix); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, prefix+"*") // private
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			if failed := os.Remove(f.Name()); !errors.Is(failed, fs.ErrNotExist) {
				err = errors.Join(err, failed)
			}
		}
	}()
	if err := allow(f, private); err != nil {
		return err
	}
	if err := write(f); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), check(f)); err != nil {
		return err
	}
	if err := publish(f.Name(), path); err != nil {
		return err
	}
	return SyncFolder(folder)
}

// allow gives a new file the permissions that it lacks: a umask may remove the owner's, too. On a file system without modes, none
// is missing, and only the owner of its mount could change them.
func allow(f *os.File, mode fs.FileMode) error {
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&mode != mode {
		err = f.Chmod(mode)
	}
	return err
}

// free returns an error if path exists.
func free(path string) error {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return taken(path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

func taken(path string) error {
	return fmt.Errorf("%s exists: give another name, or remove it", path)
}

// check returns an error if f is not the file that was written: another process may have removed or replaced it.
func check(f *os.File) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	switch named, err := os.Lstat(f.Name()); {
	case err != nil:
		return err
	case !os.SameFile(opened, named):
		return fmt.Errorf("another process replaced %s: try again", f.Name())
	case opened.Size() == 0:
		return fmt.Errorf("%s is empty", f.Name())
	}
	return nil
}

// publish renames from to to, unless to exists.
func publish(from, to string) error {
	err := os.Link(from, to)
	switch {
	case err == nil:
		return os.Remove(from)
	case errors.Is(err, fs.ErrExist):
		return taken(to)
	}
	// The file system has no hard links, like FAT.
	if err := free(to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// RemoveUnfinished removes the unfinished files with a prefix that killed processes have left in folder. No process may be
// writing such a file.
func RemoveUnfinished(folder, prefix string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if IsUnfinished(entry.Name()) && strings.HasPrefix(entry.Name(), prefix) && entry.Type().IsRegular() {
			if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// SyncFolder makes renames and removals in a folder durable.
func SyncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// lock locks the file at path, so that no other process creates target until unlock is called. It fails at once if another
// process has the lock. The kernel releases the lock when this process ends, even if it is killed.
func lock(path, target string) (unlock func() error, err error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, private)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = fmt.Errorf("another sqube is writing %s: wait for it, or give another name", target)
		case errors.Is(err, syscall.ENOLCK), errors.Is(err, errors.ErrUnsupported):
			err = nil // the file system has no locks: the first process to finish gets the name, the others fail
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		opened, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if named, err := os.Lstat(path); err == nil && os.SameFile(opened, named) {
			return func() error { return errors.Join(os.Remove(path), f.Close()) }, nil
		}
		if err := f.Close(); err != nil { // the process that had the lock removed the file
			return nil, err
		}
	}
}
