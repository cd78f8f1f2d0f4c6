//go:build !linux

package faults

import (
	"os/exec"
	"testing"
	"time"
)

// Disk is for Linux.
type Disk struct{}

// NewDisk fails the test.
func NewDisk(t testing.TB) *Disk {
	unsupported(t)
	return nil
}

// Run is for Linux.
func (*Disk) Run(*exec.Cmd) {}

// Full is for Linux.
func (*Disk) Full(bool) {}

// Room is for Linux.
func (*Disk) Room(int64) {}

// Quota is for Linux.
func (*Disk) Quota() {}

// ReadOnly is for Linux.
func (*Disk) ReadOnly(bool) {}

// FailSync is for Linux.
func (*Disk) FailSync(bool) {}

// SlowSync is for Linux.
func (*Disk) SlowSync(time.Duration) {}

// Syncing is for Linux.
func (*Disk) Syncing() int { return 0 }

// Recorder is for Linux.
type Recorder struct{}

// NewRecorder fails the test.
func NewRecorder(t testing.TB, _ string, _ func(string) bool) *Recorder {
	unsupported(t)
	return nil
}

// Run is for Linux.
func (*Recorder) Run(*exec.Cmd) {}

// Mark is for Linux.
func (*Recorder) Mark(any) {}

// Steps is for Linux.
func (*Recorder) Steps() ([]Step, error) { return nil, nil }

// WithoutLocks fails the test.
func WithoutLocks(t testing.TB, _ *exec.Cmd) { unsupported(t) }

// ReadOnly fails the test.
func ReadOnly(t testing.TB, _ *exec.Cmd, _ string) { unsupported(t) }

// Bind fails the test.
func Bind(t testing.TB, _ *exec.Cmd, _, _ string) { unsupported(t) }

func unsupported(t testing.TB) {
	t.Helper()
	t.Fatal("package faults supports only the system calls of Linux: run the tests on Linux")
}
