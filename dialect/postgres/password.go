package postgres

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// PasswordCommand is a program that prints the password for new connections, such as a token that soon expires. Its methods are safe
// for concurrent use.
type PasswordCommand struct {
	args    []string
	running chan struct{} // holds one value while the program runs, or what follows is used

	until   time.Time // when to run the program again
	printed string
	err     error
}

const (
	// passwordKept is how long a password, or a failure, is used for further connections: many may be needed at once.
	passwordKept = 2 * time.Second
	// passwordTimeout limits the run of the program.
	passwordTimeout = 10 * time.Second
	// maxPassword limits what the program prints. Tokens of clouds have some 2,000 bytes.
	maxPassword = 64 << 10
)

// NewPasswordCommand returns the program that a command line names: words separated by spaces, without a shell. It returns nil if the
// line has no words.
func NewPasswordCommand(line string) *PasswordCommand {
	args := strings.Fields(line)
	if len(args) == 0 {
		return nil
	}
	return &PasswordCommand{args: args, running: make(chan struct{}, 1)}
}

// password returns what the program prints. The error does not contain it.
func (p *PasswordCommand) password(ctx context.Context) (string, error) {
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if time.Now().Before(p.until) {
		return p.printed, p.err
	}
	printed, err := p.run(ctx)
	if ctx.Err() != nil {
		return "", ctx.Err() // others may have more time
	}
	p.printed, p.err, p.until = printed, err, time.Now().Add(passwordKept)
	return printed, err
}

func (p *PasswordCommand) run(ctx context.Context) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, passwordTimeout)
	defer cancel()
	cmd := exec.CommandContext(bounded, p.args[0], p.args[1:]...)
	// What the program has started ends with it, and can't hold up the connection.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	stdout, stderr := &beginning{limit: maxPassword}, &beginning{limit: 1000}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	printed := strings.TrimRight(string(stdout.kept), "\r\n")
	const name = "--datastore-password-command"
	switch {
	case bounded.Err() != nil:
		return "", fmt.Errorf("%s did not end within %s", name, passwordTimeout)
	case errors.As(err, new(*exec.ExitError)):
		told := strings.Join(strings.Fields(string(stderr.kept)), " ")
		for word := range strings.FieldsSeq(printed) {
			told = strings.ReplaceAll(told, word, "…")
		}
		return "", fmt.Errorf("%s failed: %w: %s", name, err, told)
	case err != nil:
		return "", fmt.Errorf("%s: %w", name, err)
	case printed == "":
		return "", fmt.Errorf("%s printed no password", name)
	case strings.ContainsAny(printed, "\r\n\x00"), stdout.cut:
		return "", fmt.Errorf("%s must print the password and nothing else: one line of at most %d bytes", name, maxPassword)
	}
	return printed, nil
}

// beginning keeps the first bytes of what is written to it.
type beginning struct {
	kept  []byte
	limit int
	cut   bool // there was more
}

func (b *beginning) Write(p []byte) (int, error) {
	n := min(len(p), b.limit-len(b.kept))
	b.kept, b.cut = append(b.kept, p[:n]...), b.cut || n < len(p)
	return len(p), nil
}
