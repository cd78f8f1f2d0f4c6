package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The helpers, by the name (argv[0]) under which the test's own binary runs as them. They do one thing and then become the
// program in the rest of their arguments.
var helpers = map[string]struct {
	parameters int
	run        func(parameters []string) error
}{
	"sqube-faults-seccomp":  {2, interceptSelf},
	"sqube-faults-readonly": {1, mountReadOnly},
	"sqube-faults-bind":     {2, bind},
}

// through makes cmd run a helper first.
func through(cmd *exec.Cmd, helper string, parameters ...string) {
	args := append([]string{helper}, parameters...)
	cmd.Args = append(append(args, cmd.Path), cmd.Args...)
	cmd.Path = "/proc/self/exe"
}

func init() {
	helper, is := helpers[os.Args[0]]
	if !is {
		return
	}
	parameters, program := os.Args[1:1+helper.parameters], os.Args[1+helper.parameters:]
	err := helper.run(parameters)
	if err == nil {
		err = syscall.Exec(program[0], program[1:], os.Environ())
	}
	fmt.Fprintf(os.Stderr, "%s: run %s: %v\n", os.Args[0], program[0], err)
	os.Exit(127)
}

// interceptSelf installs a filter that reports the system calls with the numbers in the second parameter, and sends its
// listener to the abstract socket in the first. Initialization runs on one thread, which is the one that becomes the program:
// the filter is for that thread.
func interceptSelf(parameters []string) error {
	var calls []uint32
	for text := range strings.SplitSeq(parameters[1], ",") {
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return err
		}
		calls = append(calls, uint32(number))
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(socket, &unix.SockaddrUnix{Name: parameters[0]}); err != nil {
		return fmt.Errorf("reaching the test: %w", err)
	}
	listener, err := installFilter(calls)
	if err != nil {
		return err
	}
	return unix.Sendmsg(socket, []byte{0}, unix.UnixRights(listener), nil, 0)
}

// mountReadOnly makes the folder in the parameter read-only for this process, which has its own mount namespace.
func mountReadOnly(parameters []string) error {
	dir := parameters[0]
	if err := bind([]string{dir, dir}); err != nil {
		return err
	}
	// A user namespace must keep the mount's flags.
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return err
	}
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME
	flags := uintptr(stat.Flags)&kept | unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY
	if err := unix.Mount("", dir, "", flags, ""); err != nil {
		return fmt.Errorf("mounting %s read-only: %w", dir, err)
	}
	return nil
}

// bind mounts the first parameter at the second for this process, which has its own mount namespace.
func bind(parameters []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount(parameters[0], parameters[1], "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", parameters[0], err)
	}
	return nil
}
