package sqube

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// tooMuch is the size in bytes at which Guard kills a process.
const tooMuch = 4 << 30

// ResetPeak resets the record of the process's peak memory, VmHWM, to its current memory, and returns that.
func (p *Process) ResetPeak(t testing.TB) int64 {
	t.Helper()
	harness.Must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte("5"), 0))
	return p.Memory(t, "VmRSS")
}

// Memory returns a field of /proc/PID/status, in bytes.
func (p *Process) Memory(t testing.TB, field string) int64 {
	t.Helper()
	bytes, err := p.memory(field)
	harness.Must(t, err)
	return bytes
}

func (p *Process) memory(field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		return 0, fmt.Errorf("no %s in\n%s", field, status)
	}
	kilobytes, err := strconv.ParseInt(string(found[1]), 10, 64)
	return kilobytes << 10, err
}

// Guard kills the process, and fails the test, if it becomes so large that it endangers the machine. It ends with the test or when
// stop is called.
func (p *Process) Guard(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.Exited():
				return
			case <-time.After(50 * time.Millisecond):
			}
			if size, err := p.memory("VmRSS"); err == nil && size > tooMuch {
				t.Errorf("the server was killed at %d MiB", size>>20)
				if err := p.Signal(syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				return
			}
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}
