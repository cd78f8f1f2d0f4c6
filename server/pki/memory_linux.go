package pki

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryFiles are the files of a server that has none on disk (memfd_create(2)). They have no names, and disappear when the process
// ends, even if it is killed.
type memoryFiles map[string]*os.File

// newMemoryFiles creates the files, which are empty.
func newMemoryFiles() (memoryFiles, error) {
	m := memoryFiles{}
	for _, name := range fileNames {
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
		if errors.Is(err, unix.EINVAL) { // before Linux 6.3
			fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		}
		if err != nil {
			return nil, errors.Join(os.NewSyscallError("memfd_create", err), m.close())
		}
		m[name] = os.NewFile(uintptr(fd), name)
		if err := m[name].Chmod(fileMode); err != nil {
			return nil, errors.Join(err, m.close())
		}
	}
	return m, nil
}

const descriptors = "/proc/self/fd/"

// path returns a path that is valid in this process only.
func (m memoryFiles) path(name string) string { return fmt.Sprint(descriptors, m[name].Fd()) }

// inMemory reports whether a path is that of a file in memory. Such files always exist, and are empty until they are written.
func inMemory(path string) bool { return strings.HasPrefix(path, descriptors) }

func (m memoryFiles) close() error {
	var errs []error
	for _, f := range m {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
