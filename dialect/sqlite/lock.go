package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sqube/sqube/dialect"
)

// lockDatabase opens the database file at path, which is resolved, and creates it if there is none. No other process can lock it,
// under any name, until the returned file is closed; the kernel releases the lock when this process ends for any reason. It
// returns dialect.ErrLocked if another process has locked it.
//
// Closing any descriptor of the file drops all locks that SQLite has on it in this process (fcntl(2)). So close this one after
// SQLite's, and open no other while SQLite uses the file.
func lockDatabase(path string) (*os.File, error) {
	for {
		if err := checkFile(path); err != nil { // before a file is created
			return nil, err
		}
		f, err := openFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		holder, err := tryLock(f)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			err = fmt.Errorf("%w: stop that one first, or give this one another --datastore", dialect.ErrLocked)
		case err != nil:
			err = fmt.Errorf("locking %s: %w", path, err)
		default:
			err = errors.Join(checkFile(path), removeTwin(path), checkOneName(path), checkOldLock(path))
		}
		current := false
		if err == nil {
			current, err = names(path, f)
		}
		if err == nil && current {
			return holder, nil
		}
		if closing := f.Close(); err != nil || closing != nil {
			return nil, errors.Join(err, closing)
		}
		// Another process replaced the file before it was locked.
	}
}

// checkOldLock fails if an older sqube, which locks a file next to it, serves the file at path.
func checkOldLock(path string) error {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w, an older one (it holds %s): stop that one first", dialect.ErrLocked, f.Name())
	}
	return errors.Join(err, f.Close())
}

// names reports whether path names f.
func names(path string, f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}
