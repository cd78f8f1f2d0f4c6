package connections

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread reports whether the client has sent something that the server has not read, or has closed the connection.
func unread(conn net.Conn) bool { return poll(conn, unix.POLLIN|unix.POLLRDHUP) }

// gone reports whether the client has closed the connection.
func gone(conn net.Conn) bool { return poll(conn, unix.POLLRDHUP) }

func poll(conn net.Conn, events int16) (happened bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(polled, 0)
		happened = err == nil && n > 0
	})
	return happened || err != nil
}
