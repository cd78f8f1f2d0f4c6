package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// readyTimeout limits the start of a server; stopTimeout limits its graceful stop, after which it is killed.
const (
	readyTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// process is a process of a server.
type process struct {
	*harness.Process
	keeper *harness.Keeper
	binary string
	log    string
}

// command is a process to start.
type command struct {
	dir    string // its working directory, with its output in a log file
	binary string
	args   []string
	ready  func(context.Context) error // succeeds once it serves
}

// start runs the command.
func (c *command) start() (*process, error) {
	log := filepath.Join(c.dir, filepath.Base(c.binary)+".log")
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the child has its own descriptor
	cmd := exec.Command(c.binary, c.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, file, file
	keeper, err := harness.NewKeeper("")
	if err != nil {
		return nil, err
	}
	p, err := harness.StartProcess(cmd, keeper)
	if err != nil {
		return nil, errors.Join(err, keeper.Dismiss())
	}
	return &process{Process: p, keeper: keeper, binary: c.binary, log: log}, nil
}

// Stop terminates the process and waits. If it does not end within stopTimeout, it is killed, which is an error.
func (p *process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Exited():
		return p.keeper.Dismiss()
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %s", p.binary, stopTimeout), p.End(syscall.SIGKILL), p.keeper.Dismiss())
	}
}

// waitReady polls until check succeeds, the process has ended, or readyTimeout is over. There is no other way to find out when
// a server gets ready.
func (p *process) waitReady(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("%s ended during its start:\n%s", p.binary, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready within %s: %w\n%s", p.binary, readyTimeout, err, p.logTail())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// logTail returns the last lines of the process' log, for an error message.
func (p *process) logTail() string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// readyz returns a check that GET /readyz returns 200. It trusts any certificate, since it does not use the response.
func readyz(port int) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true,
		DisableKeepAlives: true,
	}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address(port)+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz returned %s", response.Status)
		}
		return nil
	}
}

// accepts returns a check that something listens on the port.
func accepts(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", loopback(port))
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
func address(port int) string  { return "https://" + loopback(port) }
