package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
)

// TestOlderVersion serves what the last sqube of an older Kubernetes has written: see record.
func TestOlderVersion(t *testing.T) {
	t.Parallel()
	recordings, err := filepath.Glob("testdata/sqube-*.db.gz")
	if err != nil || len(recordings) == 0 {
		t.Fatalf("there is no recording: %v", err)
	}
	for _, recording := range recordings {
		name := strings.TrimSuffix(recording, ".db.gz")
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			harness.Engines(t, func(t *testing.T, engine harness.Engine) { servesRecording(t, engine, name) })
		})
	}
}

func servesRecording(t *testing.T, engine harness.Engine, name string) {
	file := filepath.Join(t.TempDir(), "recorded.db")
	harness.Must(t, os.WriteFile(file, harness.ReadGzip(t, name+".db.gz"), 0o600))
	// Its Events expired an hour after they were recorded: the server would remove them sooner or later.
	db := harness.OpenDatabase(t, harness.Engine{Name: "sqlite", Datastore: "sqlite://" + file})
	_, err := db.Exec("UPDATE log SET expires_at = ? WHERE expires_at IS NOT NULL", time.Now().Add(time.Hour).UnixMilli())
	harness.Must(t, errors.Join(err, db.Close()))
	if engine.Name == "sqlite" {
		engine.Datastore = "sqlite://" + file
		succeeds(t, []string{"migrate", "up", "--datastore", engine.Datastore})
		keepsHistory(t, engine.Datastore)
	} else {
		succeeds(t, []string{"restore", file, "--datastore", engine.Datastore})
	}
	key, err := os.ReadFile("testdata/older.key")
	harness.Must(t, err)
	keys := filepath.Join(t.TempDir(), "key")
	harness.Must(t, os.WriteFile(keys, key, 0o600))
	s := serve(t, append([]string{"--datastore", engine.Datastore, "--pki-encryption-key-file", keys, "--retention", "200000h"}, everykind.MoreFlags...))
	c := client(t, s.Kubeconfig)

	var lists map[string]json.RawMessage
	harness.Must(t, json.Unmarshal(harness.ReadGzip(t, name+".lists.json.gz"), &lists))
	for _, definition := range []string{"widgets", "gadgets"} {
		harness.Retry(t, definition+" are served", func() error {
			return raw(c).Get().AbsPath("/apis/example.com/v1/" + definition).Do(t.Context()).Error()
		})
	}
	kinds := map[string]bool{}
	for path, list := range lists {
		sameAsRecorded(t, c, path, list, kinds)
	}
	if len(kinds) < 60 {
		t.Errorf("there are objects of %d kinds: %v", len(kinds), kinds)
	}
	watchesRecording(t, engine, c, lists["/api/v1/configmaps"])
	for path, list := range lists {
		objects, err := everykind.Objects(list)
		harness.Must(t, err)
		for _, object := range objects {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"upgraded":%q}}}`, path)
			err := raw(c).Patch(types.MergePatchType).AbsPath(everykind.Path(path, object)).Body(patch).Do(t.Context()).Error()
			if err != nil && !everykind.Unserved(err, path) {
				t.Errorf("changing %s %s: %v", path, object.GetName(), err)
			}
		}
	}
	// What this version has written is of use to the older one, but for the schema.
	version := strings.Replace(filepath.Base(name), "sqube-", "v", 1)
	finds(t, []string{"check", "--for", version, "--datastore", engine.Datastore}, []string{newerSchema}, version+" does not know all of it: 1 findings in ")
	if text := succeeds(t, []string{"check", "--datastore", engine.Datastore, "--pki-encryption-key-file", keys}); !strings.HasSuffix(text, ", nothing wrong\n") {
		t.Error(text)
	}
}

func raw(c kubernetes.Interface) rest.Interface { return c.Discovery().RESTClient() }

// keepsHistory prints who has changed and deleted objects.
func keepsHistory(t *testing.T, datastore string) {
	t.Helper()
	for object, want := range map[string]string{
		"configmaps changed": `(?s)create .*update .*update .*update `,
		"cm gone":            `(?s)create .*delete `,
		"widgets older":      `create `,
	} {
		text := succeeds(t, append(append([]string{"history"}, strings.Fields(object)...), "-n", "prod", "--datastore", datastore))
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the history of %s:\n%s", object, text)
		}
	}
}

// sameAsRecorded lists again, and notes what kinds there are.
func sameAsRecorded(t *testing.T, c kubernetes.Interface, path string, list []byte, kinds map[string]bool) {
	t.Helper()
	want, err := everykind.Objects(list)
	harness.Must(t, err)
	answer, err := raw(c).Get().AbsPath(path).DoRaw(t.Context())
	if everykind.Unserved(err, path) {
		return
	}
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	if len(want) > 0 {
		kinds[path[strings.LastIndex(path, "/")+1:]] = true
	}
	got, err := everykind.Objects(answer)
	harness.Must(t, err)
	if len(got) != len(want) {
		t.Fatalf("%s: there are %d objects of %d", path, len(got), len(want))
	}
	for i := range want {
		if strings.HasSuffix(path, "/storageversionmigrations") { // the migration goes on
			delete(want[i].Object, "status")
			want[i].SetResourceVersion("")
			want[i].SetManagedFields(nil)
		}
		if diff := cmp.Diff(want[i].Object, everykind.Common(want[i].Object, got[i].Object)); diff != "" {
			t.Errorf("%s: then (-) and now (+) differ:\n%s", path, diff)
		}
	}
}

// watchesRecording continues a watch of the older server's. A restored database has new revisions.
func watchesRecording(t *testing.T, engine harness.Engine, c kubernetes.Interface, list []byte) {
	t.Helper()
	var last struct{ Metadata metav1.ListMeta }
	harness.Must(t, json.Unmarshal(list, &last))
	w, err := c.CoreV1().ConfigMaps("prod").Watch(t.Context(), metav1.ListOptions{ResourceVersion: last.Metadata.ResourceVersion})
	if engine.Name == "postgres" && apierrors.IsResourceExpired(err) {
		return
	}
	harness.Must(t, err)
	defer w.Stop()
	_, err = c.CoreV1().ConfigMaps("prod").Patch(t.Context(), "changed", types.MergePatchType, []byte(`{"data":{"round":"upgraded"}}`), metav1.PatchOptions{})
	harness.Must(t, err)
	event := <-w.ResultChan()
	if engine.Name == "postgres" && event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		return
	}
	object, ok := event.Object.(metav1.Object)
	if event.Type != watch.Modified || !ok || object.GetName() != "changed" {
		t.Errorf("the first event is %s of %v", event.Type, event.Object)
	}
}
