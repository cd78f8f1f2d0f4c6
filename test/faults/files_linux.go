package faults

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// WithoutLocks makes a command, not started yet, run where files can't be locked: flock, and fcntl for locks, fail with ENOLCK,
// as over NFS without a lock daemon.
func WithoutLocks(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	newInterceptor(t, func(c *call) unix.Errno {
		if c.number == unix.SYS_FLOCK {
			return unix.ENOLCK
		}
		switch c.args[1] {
		case unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_SETLK, unix.F_OFD_SETLKW:
			return unix.ENOLCK
		}
		return 0
	}, unix.SYS_FLOCK, unix.SYS_FCNTL).run(cmd)
}

// ReadOnly makes a command, not started yet, run with the folder on a file system that is mounted read-only. It runs as root of
// a user namespace that has only its own user.
func ReadOnly(t testing.TB, cmd *exec.Cmd, dir string) {
	t.Helper()
	mounting(cmd, "sqube-faults-readonly", dir)
}

// Bind makes a command, not started yet, run with the file or folder from mounted at the path to, which must exist and be of
// the same kind. It runs as with ReadOnly.
func Bind(t testing.TB, cmd *exec.Cmd, from, to string) {
	t.Helper()
	mounting(cmd, "sqube-faults-bind", from, to)
}

// mounting makes cmd run a helper that mounts something only for it.
func mounting(cmd *exec.Cmd, helper string, parameters ...string) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	through(cmd, helper, parameters...)
}
