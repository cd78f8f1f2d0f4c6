package faults

import "golang.org/x/sys/unix"

// removeCalls are the system calls that remove files.
var removeCalls = []uint32{unix.SYS_UNLINKAT, unix.SYS_UNLINK}

// removes returns the address of the path that a call removes.
func removes(c *call) (path uint64, is bool) {
	switch c.number {
	case unix.SYS_UNLINKAT:
		return c.args[1], true
	case unix.SYS_UNLINK:
		return c.args[0], true
	}
	return 0, false
}
