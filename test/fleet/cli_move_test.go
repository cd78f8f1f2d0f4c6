package fleet

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestMove moves a cluster from a host on SQLite to one on each engine and back, by move, and by export and import.
func TestMove(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		here, there := startCommands(t, harness.Engine{}), startCommands(t, engine)
		here.run(t, "create", "dev", "--controllers", "None")
		credentials := here.kubeconfig(t, "dev")
		kubectl(t, credentials, "create", "configmap", "a", "--from-literal", "key=1")
		kubectl(t, credentials, "patch", "configmap", "a", "--type", "merge", "-p", `{"data": {"key": "2"}}`)
		const version = "jsonpath={.data.key} {.metadata.resourceVersion} {.metadata.uid}"
		want := kubectl(t, credentials, "get", "configmap", "a", "-o", version)
		got := here.run(t, "move", "dev", "--to-kubeconfig", there.Kubeconfig, "--to", "sqube", "--to-name", "moved")
		if got != "cluster.fleet.sqube.io/moved moved: "+there.URL+"/clusters/default/moved\n" {
			t.Errorf("move prints %s", got)
		}
		harness.Eventually(t, "it is gone from the first host", func() bool { return here.object(t, "dev") == nil })
		if spec := there.object(t, "moved").Spec; spec.Controllers != "None" {
			t.Errorf("it has the spec %+v", spec)
		}
		moved := there.kubeconfig(t, "moved")
		if got := kubectl(t, moved, "get", "configmap", "a", "-o", version); got != want {
			t.Errorf("there is %s, want %s", got, want)
		}
		if got := kubectl(t, moved, "get", "changes", "-o", "name"); strings.Count(got, "\n") < 2 {
			t.Errorf("its history is %s", got)
		}
		kubectl(t, moved, "create", "configmap", "b")

		file, key := filepath.Join(t.TempDir(), "dev.tar"), filepath.Join(t.TempDir(), "key")
		harness.Must(t, os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"), 0o600))
		if got := there.run(t, "export", "moved", file, "--key-file", key); !strings.HasPrefix(got, file+": ") {
			t.Errorf("export prints %s", got)
		}
		there.refuses(t, "exists: give another name", "export", "moved", file)
		here.refuses(t, "the export has the cluster's keys, encrypted", "import", file, "back")
		if here.object(t, "back") != nil {
			harness.Eventually(t, "a failed import leaves no cluster", func() bool { return here.object(t, "back") == nil })
		}
		here.run(t, "import", file, "back", "--key-file", key)
		if got := kubectl(t, here.kubeconfig(t, "back"), "get", "configmap", "a", "-o", version); got != want {
			t.Errorf("back is %s, want %s", got, want)
		}
		plain := filepath.Join(t.TempDir(), "plain.tar")
		there.run(t, "export", "moved", plain)
		here.run(t, "import", plain)
		if got := kubectl(t, here.kubeconfig(t, "moved"), "get", "configmaps", "-o", "name"); !strings.Contains(got, "configmap/b\n") {
			t.Errorf("without keys, it has %s", got)
		}
		here.refuses(t, "is no export of a cluster", "import", key, "other")
	})
}
