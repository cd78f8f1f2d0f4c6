package kubectl

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// A kube-apiserver is the reference: run one transcript at a time against a fresh cluster of it, without
// controller-manager but for the namespace, garbage-collector and service-account controllers:
//
//	go test ./test/kubectl -run TestKubectl/get -args -record FILE
var record = flag.String("record", "", "write the transcripts anew from the cluster that this kubeconfig names")

// TestKubectl runs each transcript on a fresh server with an empty database.
func TestKubectl(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found no transcripts: %v", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txt"), func(t *testing.T) {
			steps := read(t, script)
			if *record != "" {
				write(t, script, replay(t, steps, *record))
				return
			}
			t.Parallel()
			harness.Engines(t, func(t *testing.T, engine harness.Engine) {
				server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
				for i, got := range replay(t, steps, server.Kubeconfig) {
					if want := steps[i]; !same(want.output, got.output) {
						t.Errorf("%s:%d: %s\n%s", script, want.line, want.command, diff(t, want.output, got.output))
					}
				}
			})
		})
	}
}

// replay runs the commands of a transcript against a cluster and returns the transcript of that.
func replay(t *testing.T, steps transcript, kubeconfig string) transcript {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	// A copy, since transcripts change the current namespace.
	own, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, own, 0o600); err != nil {
		t.Fatal(err)
	}
	sh := shell{dir: dir, env: sqube.NewKubectl(t, kubeconfig).Env()}
	var done transcript
	for _, s := range steps {
		s.output = sh.run(t, s.command)
		done = append(done, s)
	}
	return done
}

func read(t *testing.T, path string) transcript {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return steps
}

func write(t *testing.T, path string, steps transcript) {
	t.Helper()
	if err := os.WriteFile(path, []byte(steps.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
