package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Launch runs a program until the test ends, whose last part of output is logged if the test has failed. It does not wait until the program is
// ready.
func Launch(t testing.TB, program string, args ...string) {
	t.Helper()
	name := filepath.Base(program)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	Must(t, err)
	defer log.Close() // the child has its own descriptor
	keeper, err := NewKeeper("")
	Must(t, err)
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := StartProcess(cmd, keeper)
	if err != nil {
		t.Fatal(errors.Join(err, keeper.Dismiss()))
	}
	t.Cleanup(func() {
		if t.Failed() {
			written, err := os.ReadFile(log.Name())
			t.Logf("the end of %s's log: %v\n%s", name, err, written[max(0, len(written)-8000):])
		}
		if err := errors.Join(process.End(syscall.SIGKILL), keeper.Dismiss()); err != nil {
			t.Errorf("end %s: %v", name, err)
		}
	})
}
