package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate makes the file size bytes long and sets aside the space for them.
func allocate(file *os.File, size int64) error {
	for {
		// On some file systems, a signal to the process ends it.
		if err := unix.Fallocate(int(file.Fd()), 0, 0, size); err != unix.EINTR {
			return err
		}
	}
}
