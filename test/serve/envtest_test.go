package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestEnvtestAssets writes the stand-ins for envtest's programs, and uses them like envtest. test/tools/envtest runs envtest
// itself with them.
func TestEnvtestAssets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's", "here")
	stdout, stderr, code := sqube.Run(t, []string{"envtest", dir}, env("PATH="+dir))
	if code != 0 || stdout != "export KUBEBUILDER_ASSETS="+dir+"\n" || !strings.Contains(stderr, "--kubectl") {
		t.Errorf("ended with code %d and wrote\n%s%s", code, stdout, stderr)
	}
	program := func(name string, args ...string) (string, error) {
		out, err := exec.Command(filepath.Join(dir, name), args...).CombinedOutput()
		return string(out), err
	}

	t.Run("kubectl is missing", func(t *testing.T) {
		if out, err := program("kubectl", "version"); err == nil || !strings.Contains(out, "run sqube envtest again") {
			t.Errorf("wrote %q: %v", out, err)
		}
	})
	t.Run("help shows flags that envtest looks for", func(t *testing.T) {
		for name, flag := range map[string]string{"etcd": "--unsafe-no-fsync", "kube-apiserver": "--cert-dir"} {
			out, err := program(name, "--help")
			if err != nil || !strings.Contains(out, "  "+flag+" ") || strings.Contains(out, "--insecure-port") {
				t.Errorf("%s --help: %v\n%s", name, err, out)
			}
		}
	})
	t.Run("etcd is healthy and prints its address", func(t *testing.T) {
		url := "http://127.0.0.1:" + freePort(t)
		p := sqube.Command(t, []string{"envtest-etcd", "--data-dir", t.TempDir(), "--listen-client-urls", url, "--listen-peer-urls=http://127.0.0.1:0", "--unknown=1"})
		for path, want := range map[string]string{"/health": `{"health":"true","reason":""}`, "/version": `"etcdserver":"3.`} {
			body := ""
			harness.Retry(t, "etcd responds", func() error {
				response, err := http.Get(url + path)
				if err != nil {
					return err
				}
				defer response.Body.Close()
				text, err := io.ReadAll(response.Body)
				body = string(text)
				return err
			})
			if !strings.Contains(body, want) {
				t.Errorf("%s is %s", path, body)
			}
		}
		p.Stop(t)
	})
	t.Run("kube-apiserver needs that etcd", func(t *testing.T) {
		other := httptest.NewServer(http.NotFoundHandler())
		defer other.Close()
		for _, c := range [][2]string{{"", "--etcd-servers must be specified"}, {"--etcd-servers=" + other.URL, "use both from one folder"}} {
			out, err := program("kube-apiserver", append([]string{"--secure-port=1"}, strings.Fields(c[0])...)...)
			if err == nil || !strings.Contains(out, c[1]) || strings.Count(out, "\n") != 1 {
				t.Errorf("with %q it wrote\n%s: %v", c[0], out, err)
			}
		}
	})
	t.Run("another path", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		harness.Must(t, os.WriteFile(file, nil, 0o600))
		for _, args := range [][]string{{"envtest"}, {"envtest", file}, {"envtest", "--kubectl=/nowhere", t.TempDir()}} {
			if _, stderr, code := sqube.Run(t, args); code != 1 || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%q ended with code %d and wrote\n%s", args, code, stderr)
			}
		}
	})
}
