package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Process is a program that runs alongside the tests, in its own process group: control-C in the terminal only reaches the
// tests, which then stop it.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	// Set once exited is closed: how it ended, and the error of telling the keeper.
	ended, forgotten error
}

// StartProcess starts the command. The keeper, which must watch nothing else until it has ended, stops it when this process
// ends, however that ends.
func StartProcess(cmd *exec.Cmd, keeper *Keeper) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	watched := keeper.Watch(cmd.Process.Pid)
	go func() {
		p.ended = cmd.Wait()
		p.forgotten = keeper.Forget() // its id may soon be reused
		close(p.exited)
	}()
	if watched != nil {
		return nil, errors.Join(watched, p.End(syscall.SIGKILL))
	}
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Runs reports whether the process has not ended yet. A nil Process was never started.
func (p *Process) Runs() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Wait waits until the process has ended and returns its error, like exec.Cmd: nil for exit code 0.
func (p *Process) Wait() error {
	<-p.exited
	return p.ended
}

// Signal sends a signal. It does nothing if the process has ended.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.cmd.Path, err)
	}
	return nil
}

// End sends a signal, if the process is running, and waits until it has ended.
func (p *Process) End(signal os.Signal) error {
	if !p.Runs() {
		return nil
	}
	if err := p.Signal(signal); err != nil {
		return err
	}
	<-p.exited
	return p.forgotten
}
