//go:build linux && !amd64

package faults

import "golang.org/x/sys/unix"

// removeCalls are the system calls that remove files.
var removeCalls = []uint32{unix.SYS_UNLINKAT}

// removes returns the address of the path that a call removes.
func removes(c *call) (path uint64, is bool) {
	return c.args[1], c.number == unix.SYS_UNLINKAT
}
