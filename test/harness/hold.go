package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Held is a server that the benchmark has built and started, and keeps running.
type Held struct {
	Kubeconfig string // path of the administrator's kubeconfig
	State      string // where a kube-apiserver keeps its state: etcd's URL, kine's file or DSN

	cmd *exec.Cmd
}

// Hold starts a server with the benchmark, by its name there, such as sqube-sqlite, etcd or kine-postgres, with additional
// flags. The working directory must be the repository's root. Close removes the server and its state.
func Hold(ctx context.Context, name string, flags ...string) (*Held, error) {
	h := &Held{cmd: exec.CommandContext(ctx, "go", append([]string{"run", "./test/bench", "hold", name}, flags...)...)}
	h.cmd.Stderr = os.Stderr
	// An interrupt stops the server and removes its state; the go command forwards it.
	h.cmd.Cancel = func() error { return h.cmd.Process.Signal(os.Interrupt) }
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(stdout)
	for _, field := range []*string{&h.Kubeconfig, &h.State} {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), h.Close())
		}
		*field = strings.TrimSpace(line)
	}
	return h, nil
}

// Close stops the server and removes its state.
func (h *Held) Close() error {
	err := syscall.Kill(-h.cmd.Process.Pid, syscall.SIGINT)
	var exit *exec.ExitError
	if waited := h.cmd.Wait(); waited != nil && !errors.As(waited, &exit) { // the go command reports its interrupt as a failure
		err = errors.Join(err, waited)
	}
	return err
}
