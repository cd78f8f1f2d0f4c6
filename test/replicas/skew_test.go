package replicas

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
	"github.com/sqube/sqube/test/harness/sqube"
)

var oldFlag = flag.String("old", "", "the last sqube with the previous minor version of Kubernetes; if unset, the current one emulates it")

// TestSkew upgrades a server on a database while another one still runs the previous minor version, and goes back. Each reads
// everything that the other has written, and keeps it when it writes.
func TestSkew(t *testing.T) {
	t.Parallel()
	datastore, key := harness.Postgres(t), sqube.KeyFile(t)
	args := append([]string{keyFlag, key}, everykind.MoreFlags...)
	older := sqube.Options{Datastore: datastore, Binary: *oldFlag, Args: args}
	if *oldFlag == "" {
		older.Args = append(slices.Clone(args), "--emulated-version=1.36")
	}
	newServer, oldServer := sqube.Start(t, sqube.Options{Datastore: datastore, Args: args}), sqube.Start(t, older)
	newer, old := filler(t, newServer), filler(t, oldServer)
	for _, step := range []error{newer.Create(t.Context()), newer.CreateMore(t.Context()), newer.Change(t.Context()), newer.Settled(t.Context())} {
		harness.Must(t, step)
	}
	written, err := newer.Lists(t.Context())
	harness.Must(t, err)
	read(t, old.Client, written)
	touch(t, old.Client, written, "older")
	read(t, newer.Client, written)
	touch(t, newer.Client, written, "newer")
	check, err := exec.CommandContext(t.Context(), sqube.Binary(t), "check", "--for", "v1.36", "--datastore", datastore).CombinedOutput()
	schema := fmt.Sprintf("the schema is %d, and the last sqube with v1.36 knows those up to 6", len(harness.Schemas(t, "postgres")))
	if err == nil || !strings.Contains(string(check), schema) || !strings.Contains(string(check), ": 1 findings in ") {
		t.Errorf("v1.36 knows all but the schema, says check: %v\n%s", err, check)
	}

	// The way back.
	newServer.Stop(t)
	oldServer.Stop(t)
	back := sqube.Start(t, older)
	read(t, client(t, back.Config(t)), written)
	touch(t, client(t, back.Config(t)), written, "back")
	if text := succeeds(t, "check", "--datastore", datastore, keyFlag, key); !strings.HasSuffix(text, ", nothing wrong\n") {
		t.Error(text)
	}
}

func filler(t *testing.T, s *sqube.Server) *everykind.Filler {
	t.Helper()
	config := s.Config(t)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	f, err := everykind.New(config)
	harness.Must(t, err)
	return f
}

// read lists everything, has the server decode it, and checks that it is complete.
func read(t *testing.T, c kubernetes.Interface, lists map[string]json.RawMessage) {
	t.Helper()
	kinds := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(lists)) {
		want := objects(t, lists[path])
		if len(want) == 0 {
			continue
		}
		var list []byte
		harness.Eventually(t, path+" is served", func() bool { // a new definition is not, at once
			var err error
			if list, err = c.Discovery().RESTClient().Get().AbsPath(path).Param("pretty", "true").DoRaw(t.Context()); err != nil {
				list = nil
			}
			return err == nil || unserved(err, path)
		})
		if list == nil {
			continue
		}
		kinds[path[strings.LastIndex(path, "/")+1:]] = true
		if got := objects(t, list); len(got) != len(want) {
			t.Errorf("%s has %d objects of %d", path, len(got), len(want))
		} else if diff := cmp.Diff(want, everykind.Common(want, got)); diff != "" {
			t.Errorf("%s: what was written (-) and what is read (+) differ:\n%s", path, diff)
		}
	}
	if len(kinds) < 60 {
		t.Errorf("there are objects of %d kinds: %v", len(kinds), kinds)
	}
}

// touch changes the metadata of every object in every version.
func touch(t *testing.T, c kubernetes.Interface, lists map[string]json.RawMessage, by string) {
	t.Helper()
	for path, list := range lists {
		found, err := everykind.Objects(list)
		harness.Must(t, err)
		for _, object := range found {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, by+path)
			err := c.Discovery().RESTClient().Patch(types.MergePatchType).AbsPath(everykind.Path(path, object)).Body(patch).Do(t.Context()).Error()
			if err != nil && !unserved(err, path) {
				t.Errorf("changing %s of %s: %v", object.GetName(), path, err)
			}
		}
	}
}

// unserved reports whether an error means that a server does not serve a version of a built-in resource. Each serves some that the other
// does not.
func unserved(err error, path string) bool {
	return apierrors.IsNotFound(err) && !strings.Contains(path, "example.com")
}

// objects returns the objects of a list by namespace and name, without what every write changes.
func objects(t *testing.T, list []byte) map[string]any {
	t.Helper()
	found, err := everykind.Objects(list)
	harness.Must(t, err)
	byName := map[string]any{}
	for _, object := range found {
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		object.SetGeneration(0) // which counts annotations of a Deployment
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "touched")
		if len(object.GetAnnotations()) == 0 {
			object.SetAnnotations(nil)
		}
		if spec, ok := object.Object["spec"].(map[string]any); ok && spec["resource"] != nil {
			delete(object.Object, "status") // of a migration, which goes on
		}
		if status, ok := object.Object["status"].(map[string]any); ok && len(status) == 0 {
			delete(object.Object, "status") // of a CSINode, which only the newer version has
		}
		byName[object.GetNamespace()+"/"+object.GetName()] = object.Object
	}
	return byName
}
