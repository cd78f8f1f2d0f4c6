package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// standIn is packaged instead of sqube, which takes long to compress. It runs sqube under the name with which it was called.
const standIn = `#!/bin/bash
exec -a "$0" /packages/sqube "$@"
`

// TestPackages installs, runs, upgrades and removes the packages, each in a copy of this system, with its own dpkg and rpm: see
// testdata/package.sh. Only root may mount one.
func TestPackages(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("only root can install packages: run this test as root")
	}
	for _, format := range []string{"deb", "rpm"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			port, err := harness.FreePort()
			harness.Must(t, err)
			script := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "testdata/package.sh",
				t.TempDir(), format, pack(t, format, "0~git1"), pack(t, format, "0~git2"), strconv.Itoa(port), sqube.Binary(t))
			out, err := script.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "== done\n") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestPackagesAreReproducible packages one binary twice.
func TestPackagesAreReproducible(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"deb", "rpm"} {
		var packages [2][]byte
		for i := range packages {
			text, err := os.ReadFile(pack(t, format, "0~git1"))
			harness.Must(t, err)
			packages[i] = text
		}
		if string(packages[0]) != string(packages[1]) {
			t.Errorf("two %s packages of the same files differ", format)
		}
	}
}

// pack creates a package, and returns its path.
func pack(t *testing.T, format, release string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sqube")
	harness.Must(t, os.WriteFile(binary, []byte(standIn), 0o755))
	cmd := exec.Command("../tools/release/packages", binary, "amd64", format, release, t.TempDir())
	cmd.Env = append(os.Environ(), sqube.BinaryVariable+"="+sqube.Binary(t), sqube.Variable("nfpm")+"="+sqube.Program(t, "nfpm"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	path, err := cmd.Output()
	if err != nil {
		t.Fatalf("packages: %v\n%s", err, stderr.String())
	}
	return strings.TrimSpace(string(path))
}
