package harness

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The ports that FreePort returns. They are outside the range from which kernels choose, 32768 to 60999, and odd: round numbers
// occur in responses that tests search for a port.
const firstPort, lastPort = 20001, 29999

// FreePort returns a TCP port of 127.0.0.1 that nothing listens on. The test processes of one user take turns, so no other test
// gets the port before its server listens, or while that is stopped.
func FreePort() (int, error) {
	name := filepath.Join(os.TempDir(), fmt.Sprintf("sqube-port-%d", os.Getuid())) // has the last port
	unlock, err := lockFile(name)
	if err != nil {
		return 0, err
	}
	defer unlock()
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	port := lastPort
	if last := strings.TrimSpace(string(text)); last != "" {
		if port, err = strconv.Atoi(last); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	for range (lastPort-firstPort)/2 + 1 {
		if port += 2; port > lastPort {
			port = firstPort
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, errors.Join(listener.Close(), os.WriteFile(name, []byte(strconv.Itoa(port)), 0o600))
		}
	}
	return 0, fmt.Errorf("no odd port from %d to %d is free", firstPort, lastPort)
}
