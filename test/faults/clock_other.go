//go:build !(linux && amd64)

package faults

import (
	"errors"
	"os/exec"
	"testing"
	"time"
)

var errNoClock = errors.New("package faults supports only the vDSO of linux/amd64: run the tests there")

// ClockOff fails the test.
func ClockOff(t testing.TB, _ *exec.Cmd, _ time.Duration) {
	t.Helper()
	t.Fatal(errNoClock)
}

// StepClock fails.
func StepClock(int, time.Duration) error { return errNoClock }
