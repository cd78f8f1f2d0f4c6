package faults

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Recorder records, in order, what the processes that run under it do to some files of a folder, so that the folder can be
// recreated as left by a power cut at any moment.
//
// It intercepts pwrite, ftruncate, fallocate, every way to sync a file, and unlink, which is how SQLite uses its files.
type Recorder struct {
	interceptor *interceptor
	folder      string
	wanted      func(name string) bool

	mu    sync.Mutex
	steps []Step
	err   error
}

// NewRecorder returns a recorder of the files in a folder, without symbolic links, whose names are wanted. It stops when the
// test ends.
func NewRecorder(t testing.TB, folder string, wanted func(name string) bool) *Recorder {
	t.Helper()
	r := &Recorder{folder: folder, wanted: wanted}
	r.interceptor = newInterceptor(t, func(c *call) unix.Errno {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.record(c); err != nil && r.err == nil {
			r.err = err
		}
		return 0
	}, append(removeCalls, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE,
		unix.SYS_FSYNC, unix.SYS_FDATASYNC)...)
	return r
}

// Run makes a command, not started yet, run under the recorder. Several commands may, in sequence.
func (r *Recorder) Run(cmd *exec.Cmd) { r.interceptor.run(cmd) }

// Mark records that something has happened by now.
func (r *Recorder) Mark(mark any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, Step{Mark: mark})
}

// Steps returns all that was recorded, or an error if something could not be.
func (r *Recorder) Steps() ([]Step, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.steps, r.err
}

func (r *Recorder) record(c *call) error {
	if path, is := removes(c); is {
		text, err := readText(c, path)
		if name, found := strings.CutPrefix(text, r.folder+"/"); err == nil && found && r.wanted(name) {
			r.steps = append(r.steps, Step{kind: stepRemove, name: name})
		}
		return err
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.thread, int32(c.args[0])))
	if err != nil {
		return nil // the call will fail
	}
	s := Step{name: filepath.Base(path)}
	switch {
	case path == r.folder:
		s.name = ""
	case filepath.Dir(path) != r.folder || !r.wanted(s.name):
		return nil
	}
	switch c.number {
	case unix.SYS_PWRITE64:
		s.kind, s.offset, s.data = stepWrite, int64(c.args[3]), make([]byte, c.args[2])
		err = readMemory(c, c.args[1], s.data)
	case unix.SYS_FTRUNCATE:
		s.kind, s.offset = stepTruncate, int64(c.args[1])
	case unix.SYS_FALLOCATE:
		s.kind, s.offset = stepExtend, int64(c.args[2]+c.args[3])
		if c.args[1] != 0 {
			err = fmt.Errorf("unknown mode %d of fallocate on %s", c.args[1], path)
		}
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		s.kind = stepSync
	default:
		err = fmt.Errorf("unknown system call %d on %s", c.number, path)
	}
	r.steps = append(r.steps, s)
	return err
}

func readMemory(c *call, address uint64, into []byte) error {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.thread))
	if err != nil {
		return err
	}
	defer memory.Close()
	_, err = memory.ReadAt(into, int64(address))
	return err
}

// readText reads a NUL-terminated string.
func readText(c *call, address uint64) (string, error) {
	const page = 4096
	text := make([]byte, 0, 2*page)
	for len(text) < unix.PathMax {
		part := make([]byte, page-address%page) // the next page may not be mapped
		if err := readMemory(c, address, part); err != nil {
			return "", err
		}
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return string(append(text, part[:end]...)), nil
		}
		text, address = append(text, part...), address+uint64(len(part))
	}
	return "", unix.ENAMETOOLONG
}
