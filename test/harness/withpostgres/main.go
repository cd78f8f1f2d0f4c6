// Command withpostgres runs a command with a throwaway Postgres server, so that all test processes of one `go test`
// share it:
//
//	go run ./test/harness/withpostgres go test ./...
//
// The command gets the server's DSN in SQUBE_TEST_POSTGRES. If that is already set, no server is started.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/sqube/sqube/test/harness"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withpostgres COMMAND [ARGUMENT…]")
		os.Exit(2)
	}
	code, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpostgres:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the command, or 1 and the error if there is none.
func run(name string, args []string) (code int, err error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	if os.Getenv(harness.PostgresVariable) == "" {
		server, err := harness.StartPostgres()
		if err != nil {
			return 1, err
		}
		defer func() {
			if closeErr := server.Close(); closeErr != nil {
				code, err = 1, errors.Join(err, closeErr)
			}
		}()
		cmd.Env = append(cmd.Env, harness.PostgresVariable+"="+server.DSN())
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go forward(signals, cmd.Process)

	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil // -1 if ended by a signal
	} else if err != nil {
		return 1, err
	}
	return 0, nil
}

// forward forwards signals to the command, whose end then ends this process. The terminal sends control-C to both.
func forward(signals <-chan os.Signal, process *os.Process) {
	for s := range signals {
		if s == syscall.SIGTERM {
			process.Signal(s) // fails only if the process has ended, as intended
		}
	}
}
