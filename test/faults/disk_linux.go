package faults

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is the disk of the processes that run on it, initially without faults. Faults can be changed at any time, from any
// goroutine.
//
// It intercepts pwrite, pwritev, ftruncate and fallocate, and every way to sync a file, which is how SQLite and Postgres write
// their data; not write, which sockets use too.
type Disk struct {
	interceptor *interceptor

	mu       sync.Mutex
	readOnly bool
	room     int64
	full     unix.Errno // the error when there is no room
	failSync bool
	slowSync time.Duration
	every    int           // each sync of that number is slow
	syncs    int           // since slowSync changed
	delayed  int           // of these
	changed  chan struct{} // closed when slowSync changes
	slow     int           // syncs being delayed
}

// NewDisk returns a disk that exists until the test ends. Create it before what runs on it.
func NewDisk(t testing.TB) *Disk {
	t.Helper()
	d := &Disk{room: noLimit, full: unix.ENOSPC, changed: make(chan struct{})}
	d.interceptor = newInterceptor(t, d.decide, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2,
		unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE)
	return d
}

// Run makes a command, not started yet, run on the disk, with all processes that it starts. Several commands may.
func (d *Disk) Run(cmd *exec.Cmd) { d.interceptor.run(cmd) }

const noLimit = math.MaxInt64

// Full makes writes that would extend a file fail with ENOSPC, or no longer. Other writes succeed, as on a full disk.
func (d *Disk) Full(full bool) {
	if full {
		d.Room(0)
	} else {
		d.Room(noLimit)
	}
}

// Room makes the disk full once all files together have grown by that many bytes. Truncation frees space.
func (d *Disk) Room(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = bytes
}

// Quota makes the disk full for its user only: writes then fail with EDQUOT.
func (d *Disk) Quota() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = unix.EDQUOT
}

// ReadOnly makes writes, except to open files, fail with EROFS, or no longer: like a card that has turned read-only.
func (d *Disk) ReadOnly(readOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readOnly = readOnly
}

// FailSync makes syncs fail with EIO, or no longer. Written data stays readable.
func (d *Disk) FailSync(fail bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failSync = fail
}

// SlowSync delays every sync; 0 ends that, also for those being delayed.
func (d *Disk) SlowSync(by time.Duration) { d.SlowSyncs(1, by) }

// SlowSyncs delays every nth sync, like SlowSync. Flash memory that tidies up does that.
func (d *Disk) SlowSyncs(n int, by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slowSync, d.every, d.syncs, d.delayed = by, n, 0, 0
	close(d.changed)
	d.changed = make(chan struct{})
}

// Delayed returns how many syncs were delayed since SlowSync or SlowSyncs was called.
func (d *Disk) Delayed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.delayed
}

// Syncing returns how many syncs SlowSync is delaying.
func (d *Disk) Syncing() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slow
}

func (d *Disk) decide(c *call) unix.Errno {
	switch c.number {
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE:
		return d.sync()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.readOnly:
		return unix.EROFS
	case d.room == noLimit:
		return 0
	}
	by := growth(c)
	if by > d.room {
		return d.full
	}
	d.room -= by
	return 0
}

func (d *Disk) sync() unix.Errno {
	d.mu.Lock()
	by, changed := d.slowSync, d.changed
	if d.syncs++; by > 0 && d.syncs%d.every != 0 {
		by = 0
	} else if by > 0 {
		d.delayed++
	}
	d.slow++
	d.mu.Unlock()
	if by > 0 {
		select {
		case <-time.After(by):
		case <-changed:
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow--
	if d.failSync {
		return unix.EIO
	}
	return 0
}

// growth returns by how many bytes the call extends its file, negative if it shrinks it.
func growth(c *call) int64 {
	// The files of a traceable program can be inspected too.
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", c.thread, int32(c.args[0])))
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	var end uint64
	switch c.number {
	case unix.SYS_PWRITE64:
		end = c.args[3] + c.args[2]
	case unix.SYS_PWRITEV, unix.SYS_PWRITEV2:
		end = c.args[3] + vectorLength(c)
	case unix.SYS_FTRUNCATE:
		return int64(c.args[1]) - info.Size()
	case unix.SYS_FALLOCATE:
		end = c.args[2] + c.args[3]
	}
	return max(0, int64(end)-info.Size())
}

// vectorLength returns how many bytes a pwritev writes, 1 if that is unknown.
func vectorLength(c *call) (total uint64) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.thread))
	if err != nil {
		return 1
	}
	defer memory.Close()
	const entry = 16 // struct iovec: base, length
	vector := make([]byte, entry*c.args[2])
	if _, err := memory.ReadAt(vector, int64(c.args[1])); err != nil {
		return 1
	}
	for ; len(vector) > 0; vector = vector[entry:] {
		total += binary.NativeEndian.Uint64(vector[8:])
	}
	return total
}
