// Package wholefile writes files that are there as a whole or not at all, for their owner only.
package wholefile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mode is that of everything that is made here.
const mode fs.FileMode = 0o600

// Create has write fill a new file, syncs it, and gives it the name path, which must not be taken. When write or anything
// else fails nothing is left. Of several processes that create one path at a time, one does and the others fail at once.
func Create(path string, write func(*os.File) error) (err error) {
	if err := free(path); err != nil {
		return err
	}
	folder, name := filepath.Dir(path), filepath.Base(path)
	prefix := "." + name + ".unfinished-"
	unlock, err := lock(filepath.Join(folder, "."+name+".lock"), path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := removeUnfinished(folder, prefix); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(folder, prefix+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
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
	// A umask may take even its owner's rights. On a file system without modes there is nothing to correct.
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&mode != mode {
		err = f.Chmod(mode)
	}
	if err != nil {
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

// free fails where path is taken.
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
	return fmt.Errorf("%s is there already: give another name, or remove it", path)
}

// check fails where f is not what was meant to be written: another process may remove or replace files, too.
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

// publish gives the file from the name to, unless that is taken.
func publish(from, to string) error {
	err := os.Link(from, to)
	switch {
	case err == nil:
		return os.Remove(from)
	case errors.Is(err, fs.ErrExist):
		return taken(to)
	}
	// The file system has no links, such as FAT.
	if err := free(to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// removeUnfinished deletes what processes left that were killed. Call it under the lock.
func removeUnfinished(folder, prefix string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) && entry.Type().IsRegular() {
			if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
