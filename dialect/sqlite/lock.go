package sqlite

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/sqube/sqube/dialect"
)

// acquire takes the lock file at path for as long as the returned file is
// open. The kernel lets go of it when the process ends, however it ends.
// A lock beside the database, not on it: SQLite's own locks on the file would
// be dropped when any other descriptor of it in this process is closed.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (it holds %s): stop that one first, or give this one another --datastore", dialect.ErrLocked, path)
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}
