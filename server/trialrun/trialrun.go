// Package trialrun runs sqube try as a process of its own, for servers and agents: package trial can try one change in a process, takes memory for two
// clusters, and must not take its caller with it if it fails.
package trialrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// The bounds of a trial.
const (
	// Most is how long a trial may take.
	Most = 2 * time.Minute
	// leastMemory is what must be free for a trial of a small cluster, most what one of a large cluster gets.
	leastMemory, mostMemory = 384 << 20, 2 << 30
	// mostOutput is how many bytes a result may have.
	mostOutput = 64 << 20
)

// ErrBusy is returned while another trial runs.
var ErrBusy = errors.New("another trial is running here, and there is one at a time: try again")

// ErrNoMemory is returned if there is too little memory for a trial.
type ErrNoMemory string

// Error implements error.
func (e ErrNoMemory) Error() string { return string(e) }

// running is set while this process runs a trial, for whomever.
var running atomic.Bool

// Trial is what is tried.
type Trial struct {
	// Program is the sqube that is run.
	Program string
	// Input is what sqube try reads.
	Input []byte
	// Prepare returns the arguments of sqube try. It can make files for it in a private folder, which is removed afterwards.
	Prepare func(dir string) ([]string, error)
}

// Refused returns why no trial can be made now, "" if one can.
func Refused() string {
	if free := freeMemory("/"); free > 0 && free < leastMemory {
		return fmt.Sprintf("a trial needs %d MiB of memory, and %d MiB are free on the machine that would run it: run sqube try on another one", leastMemory>>20, free>>20)
	}
	return ""
}

// Run tries a change and returns the JSON of a trial.Result. It ends when ctx does.
func (t *Trial) Run(ctx context.Context) (json.RawMessage, error) {
	if !running.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	defer running.Store(false)
	if why := Refused(); why != "" {
		return nil, ErrNoMemory(why)
	}
	dir, err := os.MkdirTemp("", "sqube-trial-") // private
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeoutCause(ctx, Most, fmt.Errorf("it was given up after %v: run sqube try, which has no limit", Most))
	defer cancel()
	arguments, err := t.Prepare(dir)
	if err != nil {
		return nil, err
	}
	command := exec.Command(t.Program, append([]string{"try", "-o", "json"}, arguments...)...)
	command.Stdin, command.Env = bytes.NewReader(t.Input), append(os.Environ(), "TMPDIR="+dir) // which is removed, even if the process is killed
	return run(ctx, command)
}

// run runs the process and returns what it prints.
func run(ctx context.Context, command *exec.Cmd) (json.RawMessage, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout, stderr := output{full: cancel}, output{full: cancel}
	command.Stdout, command.Stderr, command.WaitDelay = &stdout, &stderr, time.Second
	if err := command.Start(); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = command.Process.Kill() })()
	ended := make(chan struct{})
	go limitMemory(command.Process.Pid, ended, cancel)
	err := command.Wait()
	close(ended)
	var result json.RawMessage
	if json.Unmarshal(stdout.Bytes(), &result) == nil { // whatever the verdict, and so the exit code, is
		return result, nil
	}
	message := strings.TrimPrefix(lastLine(stderr.String()), "sqube: ")
	switch cause := context.Cause(ctx); {
	case cause != nil:
		message = cause.Error()
	case message == "" && err != nil:
		message = err.Error()
	}
	return nil, fmt.Errorf("this could not be tried: %s", message)
}

// output keeps what a process prints, up to a limit.
type output struct {
	bytes.Buffer
	full func(error)
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	if o.Len()+len(p) > mostOutput {
		err := fmt.Errorf("it prints more than %d MiB", mostOutput>>20)
		o.full(err)
		return 0, err
	}
	return o.Buffer.Write(p)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
