package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// childVariable makes this binary the child on which the faults are tested.
const childVariable = "SQUBE_FAULTS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(obey(strings.Fields(lines.Text())))
	}
}

// obey executes a command and returns one line.
func obey(words []string) any {
	switch words[0] {
	case "now":
		return time.Now().UnixNano()
	case "monotonic": // how long the child has been running
		return int64(time.Since(began))
	}
	if words[0] == "remove" {
		return os.Remove(words[1])
	}
	f, err := os.OpenFile(words[1], os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.EISDIR) {
		f, err = os.Open(words[1])
	}
	if err != nil {
		return err
	}
	defer f.Close()
	switch words[0] {
	case "open":
	case "write":
		_, err = f.WriteAt([]byte("text"), 0)
	case "sync":
		err = f.Sync()
	case "flock":
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	case "fcntl":
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	}
	return err
}

var began = time.Now()

// child is a process that executes commands.
type child struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func start(t *testing.T, faults ...func(*exec.Cmd)) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	for _, fault := range faults {
		fault(cmd)
	}
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	harness.Must(t, errors.Join(inErr, outErr, cmd.Start()))
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	return &child{cmd, in, bufio.NewScanner(out)}
}

// ask sends the child a command and returns its response.
func (c *child) ask(t *testing.T, words ...string) string {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, strings.Join(words, " ")); err != nil {
		t.Fatal(err)
	}
	if !c.out.Scan() {
		t.Fatalf("the child no longer responds: %v", c.out.Err())
	}
	return c.out.Text()
}

// expect is ask with a response that must end with end.
func (c *child) expect(t *testing.T, end string, words ...string) {
	t.Helper()
	if got := c.ask(t, words...); !strings.HasSuffix(got, end) {
		t.Errorf("%s: %s, want %s", words[0], got, end)
	}
}

const done = "<nil>"

func TestDisk(t *testing.T) {
	t.Parallel()
	disk := NewDisk(t)
	c := start(t, disk.Run)
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	c.expect(t, done, "write", old)

	disk.Full(true)
	c.expect(t, syscall.ENOSPC.Error(), "write", filepath.Join(dir, "new"))
	c.expect(t, done, "write", old) // already allocated
	c.expect(t, done, "sync", old)
	disk.Full(false)
	c.expect(t, done, "write", filepath.Join(dir, "new"))

	disk.Room(int64(len("text")))
	c.expect(t, done, "write", filepath.Join(dir, "fits"))
	c.expect(t, syscall.ENOSPC.Error(), "write", filepath.Join(dir, "more"))
	disk.Full(false)

	disk.ReadOnly(true)
	c.expect(t, syscall.EROFS.Error(), "write", old)
	disk.ReadOnly(false)

	disk.FailSync(true)
	c.expect(t, syscall.EIO.Error(), "sync", old)
	c.expect(t, done, "write", old)
	disk.FailSync(false)
	c.expect(t, done, "sync", old)

	const slow = 100 * time.Millisecond
	disk.SlowSync(slow)
	began := time.Now()
	c.expect(t, done, "sync", old)
	if took := time.Since(began); took < slow {
		t.Errorf("a slow sync takes %s, want %s", took, slow)
	}
	disk.SlowSyncs(2, slow)
	for range 4 {
		c.expect(t, done, "sync", old)
	}
	if n := disk.Delayed(); n != 2 {
		t.Errorf("of 4 syncs, %d were slow, want each second", n)
	}
	disk.SlowSync(time.Hour)
	time.AfterFunc(slow, func() { disk.SlowSync(0) })
	c.expect(t, done, "sync", old)
}

func TestWithoutLocks(t *testing.T) {
	t.Parallel()
	c := start(t, func(cmd *exec.Cmd) { WithoutLocks(t, cmd) })
	file := filepath.Join(t.TempDir(), "file")
	c.expect(t, syscall.ENOLCK.Error(), "flock", file)
	c.expect(t, syscall.ENOLCK.Error(), "fcntl", file)
	c.expect(t, done, "write", file)
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	locked, free := t.TempDir(), t.TempDir()
	c := start(t, func(cmd *exec.Cmd) { ReadOnly(t, cmd, locked) })
	c.expect(t, syscall.EROFS.Error(), "open", filepath.Join(locked, "file"))
	c.expect(t, done, "write", filepath.Join(free, "file"))
	if err := os.WriteFile(filepath.Join(locked, "file"), nil, 0o600); err != nil {
		t.Errorf("it is read-only for other processes too: %v", err)
	}
}

// TestSeveral applies several faults to one child.
func TestSeveral(t *testing.T) {
	t.Parallel()
	disk := NewDisk(t)
	dir := t.TempDir()
	c := start(t, disk.Run, func(cmd *exec.Cmd) { ReadOnly(t, cmd, dir) })
	disk.FailSync(true)
	c.expect(t, syscall.EROFS.Error(), "open", filepath.Join(dir, "file"))
	c.expect(t, syscall.EIO.Error(), "sync", filepath.Join(t.TempDir(), "file"))
}

func TestClock(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for _, first := range []time.Duration{0, -50 * year} {
		c := start(t, func(cmd *exec.Cmd) {
			if first != 0 {
				ClockOff(t, cmd, first)
			}
		})
		c.off(t, first)
		for _, d := range []time.Duration{time.Hour, -2 * time.Hour, year, 0} {
			before := c.number(t, "monotonic")
			harness.Must(t, StepClock(c.cmd.Process.Pid, d))
			c.off(t, d)
			if passed := time.Duration(c.number(t, "monotonic") - before); passed < 0 || passed > 30*time.Minute {
				t.Errorf("another clock advanced by %s", passed)
			}
		}
	}
}

// off checks that the child's clock is off by d.
func (c *child) off(t *testing.T, d time.Duration) {
	t.Helper()
	before := time.Now()
	now := time.Unix(0, c.number(t, "now")).Add(-d)
	if now.Before(before) || now.After(time.Now()) {
		t.Errorf("the child's clock is off by %s, want %s", now.Add(d).Sub(before), d)
	}
}

func (c *child) number(t *testing.T, words ...string) (n int64) {
	t.Helper()
	if _, err := fmt.Sscan(c.ask(t, words...), &n); err != nil {
		t.Fatal(err)
	}
	return n
}
