package sqube

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

const (
	// drainTimeout limits a graceful stop.
	drainTimeout = 30 * time.Second
	// shownOutput is how many bytes of an output a failed test shows.
	shownOutput = 20_000
)

// Process is a sqube that a test has started, perhaps repeatedly. Its methods are not safe for concurrent use, except those that
// only read.
type Process struct {
	*harness.Process // started last

	binary  string
	args    []string
	prepare []func(*exec.Cmd)
	keeper  *harness.Keeper
	folder  string // of its output
}

// Command starts sqube with any arguments. prepare changes the command before. If it still runs when the test ends, it is killed; if
// the test has failed, the end of its output is shown.
func Command(t testing.TB, args []string, prepare ...func(*exec.Cmd)) *Process {
	t.Helper()
	return start(t, Binary(t), args, prepare)
}

// Run runs sqube to its end, and returns what it wrote and its exit code, which is -1 if a signal ended it.
func Run(t testing.TB, args []string, prepare ...func(*exec.Cmd)) (stdout, stderr string, code int) {
	t.Helper()
	p := Command(t, args, append([]func(*exec.Cmd){uncollected}, prepare...)...)
	code = p.Code(t)
	return p.Stdout(t), p.Log(t), code
}

// uncollected spares a command that soon ends the collection of garbage, which takes a third of its time.
func uncollected(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "GOGC=off", "GOMEMLIMIT=512MiB") }

func start(t testing.TB, binary string, args []string, prepare []func(*exec.Cmd)) *Process {
	t.Helper()
	keeper, err := harness.NewKeeper("")
	harness.Must(t, err)
	p := &Process{binary: binary, args: args, prepare: prepare, keeper: keeper, folder: t.TempDir()}
	t.Cleanup(func() {
		if err := errors.Join(p.End(syscall.SIGKILL), keeper.Dismiss()); err != nil {
			t.Errorf("ending sqube: %v", err)
		}
		if t.Failed() {
			stdout, log := p.Stdout(t), p.Log(t)
			t.Logf("sqube wrote to standard output:\n%s\nand to standard error:\n%s", stdout[max(0, len(stdout)-shownOutput):], log[max(0, len(log)-shownOutput):])
		}
	})
	if err := p.Relaunch(); err != nil {
		t.Fatalf("starting sqube: %v", err)
	}
	return p
}

// Relaunch starts a process that has ended, for any reason, again. Its output continues over all starts.
func (p *Process) Relaunch() (err error) {
	if p.Runs() {
		return errors.New("it is already running")
	}
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env = os.Environ()
	for _, change := range p.prepare {
		change(cmd)
	}
	for name, stream := range map[string]func(*os.File){
		"stdout": func(f *os.File) { cmd.Stdout = f },
		"stderr": func(f *os.File) { cmd.Stderr = f },
	} {
		f, err := os.OpenFile(filepath.Join(p.folder, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer f.Close() // the child has its own descriptor
		stream(f)
	}
	p.Process, err = harness.StartProcess(cmd, p.keeper)
	return err
}

// Stdout returns what the process has written to standard output, over all starts.
func (p *Process) Stdout(t testing.TB) string {
	t.Helper()
	return p.read(t, "stdout")
}

// Log returns what the process has written to standard error, over all starts.
func (p *Process) Log(t testing.TB) string {
	t.Helper()
	return p.read(t, "stderr")
}

func (p *Process) read(t testing.TB, stream string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.folder, stream))
	harness.Must(t, err)
	return string(text)
}

// Logged waits until the log has a text at least that many times.
func (p *Process) Logged(t testing.TB, text string, times int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%q is logged %d times", text, times), func() bool { return strings.Count(p.Log(t), text) >= times })
}

// Code waits until the process ends and returns its exit code, -1 if a signal ended it.
func (p *Process) Code(t testing.TB) int {
	t.Helper()
	select {
	case <-p.Exited():
	case <-time.After(harness.Patience):
		t.Fatalf("sqube still runs after %s", harness.Patience)
	}
	err := p.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	harness.Must(t, err)
	return 0
}

// Stop stops the process with SIGTERM, and waits until it has ended. It fails the test if that takes too long or the process ends
// with an error.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if !p.Runs() {
		t.Fatal("sqube is not running")
	}
	harness.Must(t, p.Signal(syscall.SIGTERM))
	select {
	case <-p.Exited():
	case <-time.After(drainTimeout):
		t.Fatalf("sqube is still running %s after SIGTERM", drainTimeout)
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("sqube ended with an error after SIGTERM: %v", err)
	}
}

// Kill kills the process with SIGKILL.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	harness.Must(t, p.End(syscall.SIGKILL))
}
