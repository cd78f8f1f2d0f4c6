package faults

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sqube/sqube/test/harness"
)

// auditArch distinguishes a processor's own system calls from those of another architecture whose programs it can run.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// installFilter makes the calling thread, and what it starts, wait at the system calls with these numbers until the holder of
// the returned listener has responded. Once the listener is closed they fail with ENOSYS, so nothing hangs.
func installFilter(calls []uint32) (listener int, err error) {
	// The offsets are those of struct seccomp_data: nr, arch.
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditArch[runtime.GOARCH], Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
	}
	for _, call := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	// Without privileges, a filter requires no_new_privs.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("no_new_privs: %w", err)
	}
	// Once the supervisor has a call, only a fatal signal ends it: Go's own signals would restart it.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// call is a system call waiting for a response: struct seccomp_notif.
type call struct {
	id     uint64
	thread uint32
	_      uint32
	number int32
	_      uint32
	_      uint64
	args   [6]uint64
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	error int32
	flags uint32
}

// interceptor passes system calls of child processes to a function.
type interceptor struct {
	socket *net.UnixListener
	calls  string
	// decide returns the error of the call, or 0 to let it continue. Only a sync may take long: others wait for the other calls.
	decide func(*call) unix.Errno
}

// newInterceptor returns an interceptor of the system calls with these numbers. It stops when the test ends.
func newInterceptor(t testing.TB, decide func(*call) unix.Errno, calls ...uint32) *interceptor {
	t.Helper()
	if auditArch[runtime.GOARCH] == 0 {
		t.Fatalf("package faults does not support the system calls of %s", runtime.GOARCH)
	}
	// An abstract address needs no file that another user could reach.
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@sqube-faults-" + rand.Text()})
	harness.Must(t, err)
	numbers := make([]string, len(calls))
	for n, call := range calls {
		numbers[n] = strconv.FormatUint(uint64(call), 10)
	}
	i := &interceptor{socket: socket, calls: strings.Join(numbers, ","), decide: decide}
	ended := make(chan error, 1)
	go func() { ended <- i.accept() }()
	t.Cleanup(func() {
		if err := errors.Join(socket.Close(), <-ended); err != nil {
			t.Errorf("faults: %v", err)
		}
	})
	return i
}

// run makes cmd, which is not started yet, run under the interceptor.
func (i *interceptor) run(cmd *exec.Cmd) {
	through(cmd, "sqube-faults-seccomp", i.socket.Addr().String(), i.calls)
}

// accept accepts children until the socket is closed.
func (i *interceptor) accept() error {
	for {
		conn, err := i.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		listener, err := receiveFile(conn)
		if err := errors.Join(err, conn.Close()); err != nil {
			return err
		}
		go i.serve(listener)
	}
}

// receiveFile returns the descriptor received over the connection.
func receiveFile(conn *net.UnixConn) (int, error) {
	text, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return 0, err
	}
	if len(messages) != 1 {
		return 0, errors.New("the child sent no listener")
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return files[0], nil
}

// serve responds until all processes under the filter have ended.
func (i *interceptor) serve(listener int) {
	var answers sync.WaitGroup
	defer func() {
		answers.Wait() // before the descriptor can be reused
		unix.Close(listener)
	}()
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return
		}
		if poll[0].Revents&^unix.POLLIN != 0 {
			return
		}
		if poll[0].Revents == 0 {
			continue
		}
		c := new(call) // the kernel requires zeros
		if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(c)) != 0 {
			continue // the caller was killed meanwhile
		}
		switch c.number {
		case unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE:
			answers.Go(func() { i.respond(listener, c) })
		default:
			i.respond(listener, c)
		}
	}
}

func (i *interceptor) respond(listener int, c *call) {
	a := answer{id: c.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if errno := i.decide(c); errno != 0 {
		a.error, a.flags = -int32(errno), 0
	}
	_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) // fails if the caller was killed
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	return errno
}
