package kubectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// commandTimeout limits one command of a transcript, including what it waits for, on a busy machine. It is longer than the
// timeouts in transcripts.
const commandTimeout = 3 * time.Minute

// prelude comes before every command of a transcript.
const prelude = `
set -uo pipefail

# await FILE TEXT waits until another command has written the text to the file.
await() {
	until grep -qF -- "$2" "$1" 2>/dev/null; do sleep 0.05; done
}

# editing SCRIPT COMMAND… runs the command with an editor that applies the sed script.
editing() {
	EDITOR="sed -i -e '$1'" "${@:2}"
}
`

// shell runs the commands of one transcript, in one directory.
type shell struct {
	dir string
	env []string
}

// run returns what the command writes to stdout and stderr, in order, and its exit code if that is not 0.
func (s shell) run(t *testing.T, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", prelude+command)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.WaitDelay = 5 * time.Second // for what a terminated command has left running
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		output = fmt.Appendf(output, "[still running after %s]\n", commandTimeout)
	case errors.As(err, &exit):
		output = fmt.Appendf(output, "[exit %d]\n", exit.ExitCode())
	case err != nil:
		t.Fatalf("run %q: %v", command, err)
	}
	return normalize(string(output), s.dir)
}

// diff returns the output of `diff -u` for two texts.
func diff(t *testing.T, want, got string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"want": want, "got": got} {
		harness.Must(t, os.WriteFile(dir+"/"+name, []byte(text+"\n"), 0o600))
	}
	cmd := exec.Command("diff", "-u", "--label", "want", "--label", "got", "want", "got")
	cmd.Dir = dir
	var exit *exec.ExitError
	output, err := cmd.Output() // exit code 1 means that they differ
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output)
}
