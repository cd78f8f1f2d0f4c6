package wholefile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

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
