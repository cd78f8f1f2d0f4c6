package servertest_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// asOther is set in the process that TestQuiet starts.
const asOther = "SERVERTEST_QUIET"

// TestQuiet runs a test with several servers in a process of its own, which must print nothing else than its result, and need no inotify
// instances: a user has 128.
func TestQuiet(t *testing.T) {
	if os.Getenv(asOther) != "" {
		for range 3 {
			servertest.Run(t, servertest.Options{CRDs: []string{"testdata/crds"}})
		}
		if runtime.GOOS == "linux" {
			descriptors, err := os.ReadDir("/proc/self/fd")
			harness.Must(t, err)
			for _, d := range descriptors {
				if target, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil && strings.Contains(target, "inotify") {
					t.Errorf("descriptor %s is %s", d.Name(), target)
				}
			}
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestQuiet$")
	cmd.Env = append(os.Environ(), asOther+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "PASS\n" {
		t.Errorf("%v, and it prints\n%.3000s", err, out)
	}
}
