package sqlite

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockedByte is the byte of a file that is locked. SQLite locks others, and no database is that large.
const lockedByte = 1 << 62

// tryLock locks f and returns the file that holds the lock until it is closed: f itself. The lock is on the inode and belongs to
// the open file, so other descriptors may come and go. It fails with EAGAIN if another open file has the lock.
func tryLock(f *os.File) (*os.File, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: lockedByte, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EINVAL) { // gVisor has no such locks; nor has it NFS, where flock would lock out SQLite
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	return f, err
}

// isMount reports whether path itself is a mount point, as a container's volume of a single file is.
func isMount(path string) (bool, error) {
	var info unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &info); err != nil {
		return false, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	return info.Attributes&info.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
