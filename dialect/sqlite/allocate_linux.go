package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate makes the file size bytes long and sets aside the space for them.
func allocate(file *os.File, size int64) error {
	return unix.Fallocate(int(file.Fd()), 0, 0, size)
}
