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

// kube-apiserver is the reference. Run one transcript at a time, each on a new cluster, with only the namespace,
// garbage-collector, service-account, root-CA, quota, clusterrole-aggregation and protection controllers:
//
//	go test ./test/kubectl -run TestKubectl/get -against FILE -record
var (
	against = flag.String("against", "", "replay the transcripts on the cluster in this kubeconfig, instead of on sqube")
	record  = flag.Bool("record", false, "rewrite the transcripts with the output of that cluster")
)

// TestKubectl runs each transcript on a new server with an empty database, every other one on Postgres: what kubectl prints does not
// depend on the engine.
func TestKubectl(t *testing.T) {
	if *record && *against == "" {
		t.Fatal("-record needs -against: sqube's own output is not the reference")
	}
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found no transcripts: %v", err)
	}
	for i, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txt"), func(t *testing.T) {
			steps := read(t, script)
			if *against != "" {
				answered := replay(t, steps, *against)
				if *record {
					write(t, script, answered)
				}
				compare(t, script, steps, answered)
				return
			}
			t.Parallel()
			database := []func(testing.TB) string{harness.SQLite, harness.Postgres}[i%2]
			server := sqube.Start(t, sqube.Options{
				Datastore: database(t),
				Args:      []string{"--service-cluster-ip-range=10.0.0.0/24"}, // the transcripts name addresses
			})
			compare(t, script, steps, replay(t, steps, server.Kubeconfig))
		})
	}
}

// compare fails the test for every command whose output is not the expected one.
func compare(t *testing.T, script string, want, got transcript) {
	t.Helper()
	for i, w := range want {
		if g := got[i]; !same(w.output, g.output) {
			t.Errorf("%s:%d: %s\n%s", script, w.line, w.command, diff(t, w.output, g.output))
		}
	}
}

// replay runs the commands of a transcript against a cluster and returns the resulting transcript.
func replay(t *testing.T, steps transcript, kubeconfig string) transcript {
	t.Helper()
	dir := t.TempDir()
	harness.Must(t, os.CopyFS(dir, os.DirFS("testdata")))
	// A copy, since transcripts change the current namespace.
	own, err := os.ReadFile(kubeconfig)
	harness.Must(t, err)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, os.WriteFile(kubeconfig, own, 0o600))
	sh := shell{dir: dir, env: sqube.KubectlEnv(t, kubeconfig)}
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
	harness.Must(t, err)
	steps, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return steps
}

func write(t *testing.T, path string, steps transcript) {
	t.Helper()
	harness.Must(t, os.WriteFile(path, []byte(steps.String()), 0o644))
}
