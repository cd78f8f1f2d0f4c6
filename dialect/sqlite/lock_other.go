//go:build !linux

package sqlite

import (
	"os"
	"syscall"
)

// tryLock returns a file that holds the lock on f for as long as it is open: one beside it, since elsewhere than on Linux a
// lock on f would lock out SQLite. It fails with EAGAIN when another process has the lock.
func tryLock(f *os.File) (*os.File, error) {
	beside, err := os.OpenFile(f.Name()+".locked", os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(beside.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = beside.Close() // the cause of failing is what counts
		return nil, err
	}
	return beside, nil
}

// isMount says whether path is mounted by itself. It can't be told here.
func isMount(string) (bool, error) { return false, nil }
