package virtual

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/sqube/sqube/test/harness"
)

// TestAsDependency packs this repository as a release of the module, and loads a test of another module that requires it as the
// README says, without a replace directive. The release must hold all packages and embedded files, and the versions in
// the README must be those of go.mod.
func TestAsDependency(t *testing.T) {
	readme, err := os.ReadFile("../../server/servertest/README.md")
	harness.Must(t, err)
	requires := regexp.MustCompile(`(?s)\nrequire \(\n(\tgithub\.com/sqube/sqube )v\S+(.*?\n\)\n)`).FindSubmatch(readme)
	if requires == nil {
		t.Fatal("the README names no versions")
	}
	this := module.Version{
		Path:    "github.com/sqube/sqube",
		Version: module.PseudoVersion("", "", time.Now(), fmt.Sprintf("%012x", rand.Uint64()>>16)), // unique: the module cache is shared
	}
	cache := strings.TrimSpace(string(run(t, ".", "go", "env", "GOMODCACHE")))
	t.Cleanup(func() {
		versions := filepath.Join(cache, "cache/download", this.Path, "@v")
		for _, pattern := range []string{filepath.Join(cache, this.String()), filepath.Join(versions, this.Version+".*"), filepath.Join(versions, "list")} {
			left, _ := filepath.Glob(pattern) // go writes the list anew with each version
			for _, path := range left {
				if err := os.RemoveAll(path); err != nil {
					t.Error(err)
				}
			}
		}
	})
	proxy, user := t.TempDir(), t.TempDir()
	publish(t, filepath.Join(proxy, this.Path, "@v"), this)

	sums, err := os.ReadFile("../../go.sum")
	harness.Must(t, err)
	required := fmt.Sprintf("module example.com/user\n\ngo 1.26.0\n\nrequire (\n%s%s%s", requires[1], this.Version, requires[2])
	for name, content := range map[string]string{
		"go.mod": required, "go.sum": string(sums),
		"user_test.go": `package user

import (
	"testing"

	"github.com/sqube/sqube/server/servertest"
	"k8s.io/client-go/kubernetes"
)

func TestController(t *testing.T) {
	s := servertest.Run(t, servertest.Options{})
	kubernetes.NewForConfigOrDie(s.Config)
}
`} {
		harness.Must(t, os.WriteFile(filepath.Join(user, name), []byte(content), 0o600))
	}
	t.Setenv("GOFLAGS", "-mod=mod -modcacherw")
	t.Setenv("GOPROXY", "file://"+proxy+",file://"+cache+"/cache/download")
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOWORK", "off")
	packages := json.NewDecoder(bytes.NewReader(run(t, user, "go", "list", "-deps", "-test", "-json=ImportPath,Error,Module,EmbedFiles", "./...")))
	found := false
	for packages.More() {
		var p struct {
			ImportPath string
			Error      any
			Module     *module.Version
		}
		harness.Must(t, packages.Decode(&p))
		if p.Error != nil {
			t.Errorf("%s: %v", p.ImportPath, p.Error)
		}
		found = found || p.ImportPath == this.Path+"/server/servertest" && *p.Module == this
	}
	if !found {
		t.Error("the release's servertest is not among the packages")
	}

	resolved, err := os.ReadFile(filepath.Join(user, "go.mod"))
	harness.Must(t, err)
	for line := range strings.Lines(string(requires[2])) {
		if !strings.Contains(string(resolved), line) {
			t.Errorf("%q of the README's versions is replaced in\n%s", line, resolved)
		}
	}
}

// publish writes the files of this repository to dir, in a proxy's layout, as the given version.
func publish(t *testing.T, dir string, version module.Version) {
	t.Helper()
	harness.Must(t, os.MkdirAll(dir, 0o700))
	root, err := filepath.Abs("../..")
	harness.Must(t, err)
	var files []zip.File
	for _, path := range strings.Split(string(run(t, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, path)); path != "" && !errors.Is(err, os.ErrNotExist) {
			files = append(files, file{root, path})
		}
	}
	var packed bytes.Buffer
	harness.Must(t, zip.Create(&packed, version, files))
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	harness.Must(t, err)
	for ending, content := range map[string][]byte{".info": fmt.Appendf(nil, `{"Version":%q}`, version.Version), ".mod": mod, ".zip": packed.Bytes()} {
		harness.Must(t, os.WriteFile(filepath.Join(dir, version.Version+ending), content, 0o600))
	}
}

// file implements zip.File.
type file struct{ root, path string }

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.root, f.path)) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.root, f.path)) }

// run returns what a command prints.
func run(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return out
}
