package sqlite

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockedByte is what is locked of a file. SQLite locks others, and no database is as large.
const lockedByte = 1 << 62

// tryLock returns a file that holds the lock on f for as long as it is open: f itself. The lock is on the inode and belongs
// to this opening of it, so other descriptors may come and go. It fails with EAGAIN when another opening has the lock.
func tryLock(f *os.File) (*os.File, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: lockedByte, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EINVAL) { // gVisor has no such locks, and no NFS, where flock locks out SQLite
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	return f, err
}

// isMount says whether path is mounted by itself, as a container's volume may be that is one file.
func isMount(path string) (bool, error) {
	var info unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &info); err != nil {
		return false, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	return info.Attributes&info.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
