//go:build !linux

package sqlite

import (
	"os"
	"syscall"
)

// tryLock locks f and returns the file that holds the lock until it is closed: one next to f, since outside Linux a lock on f
// would lock out SQLite. It fails with EAGAIN if another process has the lock.
func tryLock(f *os.File) (*os.File, error) {
	beside, err := openFile(f.Name()+".locked", os.O_RDWR|os.O_CREATE, f.Name())
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(beside.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = beside.Close() // err is the cause
		return nil, err
	}
	return beside, nil
}

// isMount reports whether path itself is a mount point, which is unknown here.
func isMount(string) (bool, error) { return false, nil }
