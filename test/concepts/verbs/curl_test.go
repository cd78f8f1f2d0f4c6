package verbs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestCurl runs the commands of this folder's README in one shell, and compares the output with the one shown there, in
// which "…" stands for anything.
func TestCurl(t *testing.T) {
	readme := kit.Must(os.ReadFile("README.md"))(t)
	steps := session(t, string(readme))
	kit.OnSQLite(t, func(t *testing.T, engine harness.Engine) {
		dir := t.TempDir()
		sqube.Start(t, sqube.Options{Datastore: engine.Datastore, DataDir: filepath.Join(dir, "data")})
		for i, printed := range runShell(t, dir, steps) {
			if s := steps[i]; !regexp.MustCompile(s.form()).MatchString(printed) {
				t.Errorf("$ %s\n%s", s.command, cmp.Diff(strings.Split(s.output, "\n"), strings.Split(printed, "\n")))
			}
		}
	})
}

// step is a command of a session, and its expected output.
type step struct{ command, output string }

// form returns the pattern of the output: "…" stands for any text in a line, and on its own line for any lines.
func (s step) form() string {
	form := regexp.QuoteMeta(strings.TrimSpace(s.output))
	form = regexp.MustCompile(`(^|\n)…(\n|$)`).ReplaceAllString(form, "${1}(?s:.*?)${2}")
	return "^" + strings.ReplaceAll(form, "…", ".*") + "$"
}

// session reads the commands and outputs in the console blocks of a page.
func session(t *testing.T, page string) []step {
	t.Helper()
	var steps []step
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				steps = append(steps, step{command: command})
				continue
			}
			if len(steps) == 0 {
				t.Fatalf("a block begins with %q instead of a command", line)
			}
			last := &steps[len(steps)-1]
			if more, ok := strings.CutPrefix(line, "> "); ok && last.output == "" {
				last.command += more
			} else {
				last.output += line
			}
		}
	}
	return steps
}

// runShell runs the commands in one shell in dir, and returns what each printed.
func runShell(t *testing.T, dir string, steps []step) []string {
	t.Helper()
	const mark = "\x1e\n" // ASCII's record separator
	var script strings.Builder
	for _, s := range steps {
		script.WriteString(s.command + "printf '" + mark[:1] + "\\n'\n")
	}
	shell := exec.CommandContext(t.Context(), "bash")
	shell.Dir, shell.Stdin = dir, strings.NewReader(script.String())
	out, err := shell.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	printed := strings.Split(string(out), mark)
	if len(printed) != len(steps)+1 {
		t.Fatalf("the shell ended early:\n%s", out)
	}
	for i := range printed {
		printed[i] = strings.TrimSpace(printed[i])
	}
	return printed[:len(steps)]
}
