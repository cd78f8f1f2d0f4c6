package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// program is a unit's program, which is not installed where the tests run.
var program = regexp.MustCompile(`(?m)^(Exec\w+=)\S+`)

// TestUnits checks the units with systemd: it must know all of their settings, and rate sqube's unit as well confined.
func TestUnits(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../deploy/*.service")
	harness.Must(t, err)
	board, err := filepath.Glob("../../deploy/board/*.service")
	harness.Must(t, err)
	for _, file := range append(files, board...) {
		text, err := os.ReadFile(file)
		harness.Must(t, err)
		unit := filepath.Join(t.TempDir(), filepath.Base(file))
		harness.Must(t, os.WriteFile(unit, program.ReplaceAll(text, []byte("$1/bin/true")), 0o644))
		if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify %s: %v\n%s", file, err, out)
		}
	}
	if len(files) == 0 {
		t.Fatal("there is no unit of sqube")
	}
	for _, file := range files {
		// The exposure is from 0 to 10, here in tenths. What remains are the network, /proc and the root directory.
		if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=15", file).CombinedOutput(); err != nil {
			t.Errorf("systemd-analyze security %s: %v\n%s", file, err, out)
		}
	}
}
