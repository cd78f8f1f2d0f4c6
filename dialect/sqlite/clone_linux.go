package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// clone makes the empty file to what from is: where the file system can, the two share the space until one of them changes.
func clone(to, from *os.File) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	const most = 1 << 30
	var read, written int64
	for {
		n, err := unix.CopyFileRange(int(from.Fd()), &read, int(to.Fd()), &written, most, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil && written == 0: // another file system, or one that can't
			return copyBytes(to, from)
		case err != nil || n == 0:
			return err
		}
	}
}
