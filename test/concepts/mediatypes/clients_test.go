package mediatypes

import (
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
)

// client-go reads its feature gates once, from the environment, so they apply to a whole process.
var cborGates = []string{"KUBE_FEATURE_ClientsAllowCBOR", "KUBE_FEATURE_ClientsPreferCBOR"}

// TestClientsInCBOR runs itself as a process whose client-go prefers CBOR.
func TestClientsInCBOR(t *testing.T) {
	if os.Getenv(cborGates[0]) == "" {
		t.Parallel()
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClientsInCBOR$", "-against="+*kit.Against)
		again.Env = os.Environ()
		for _, gate := range cborGates {
			again.Env = append(again.Env, gate+"=true")
		}
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	kit.Prove(t, nil, kit.Promise{Statement: "client-go finds built-in and custom resources", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		client := kit.Must(discovery.NewDiscoveryClientForConfig(c.Config))(t)
		found := func(what string, found bool, err error) {
			t.Helper()
			if err != nil || !found {
				t.Errorf("%s: found is %v, the error %v", what, found, err)
			}
		}
		for version, kind := range map[string]string{groupVersion: "Widget", "apps/v1": "Deployment", "v1": "Pod"} {
			list, err := client.ServerResourcesForGroupVersion(version)
			found(version, err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }), err)
		}
		for _, client := range []discovery.DiscoveryInterface{client, client.WithLegacy()} {
			groups, lists, err := client.ServerGroupsAndResources()
			if discovery.IsGroupDiscoveryFailedError(err) {
				err = nil // of a group that another test deletes meanwhile: what is looked for is in the lists
			}
			for version := range map[string]bool{groupVersion: true, "apps/v1": true, "v1": true} {
				found(version, slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == version }), err)
			}
			found("the group", slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool { return g.Name+"/v1" == groupVersion }), err)
		}
	}}, kit.Promise{Statement: "client-go's dynamic client writes, reads and watches in CBOR", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		gv := kit.Must(schema.ParseGroupVersion(groupVersion))(t)
		wire := &wire{}
		config := rest.CopyConfig(c.Config)
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			wire.RoundTripper = rt
			return wire
		})
		client := kit.Must(dynamic.NewForConfig(config))(t)
		dynamicClient(t, client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
			Namespace(c.Namespace), kit.ConfigMap("a", nil))
		dynamicClient(t, client.Resource(gv.WithResource("widgets")).Namespace(c.Namespace), kit.Widget(groupVersion, "a"))
		for _, seen := range wire.seen {
			if !strings.HasSuffix(seen, "-> application/cbor") && !strings.HasSuffix(seen, "-> application/cbor-seq") {
				t.Errorf("the transport sent %s", seen)
			}
		}
		for _, sent := range []string{kit.CBOR, applyCBOR} {
			if !slices.ContainsFunc(wire.seen, func(seen string) bool { return strings.HasPrefix(seen, sent+" ") }) {
				t.Errorf("nothing was sent as %s: %s", sent, wire.seen)
			}
		}
	}})
}

// dynamicClient calls all methods of a dynamic client on an object.
func dynamicClient(t *testing.T, objects dynamic.ResourceInterface, object map[string]any) {
	t.Helper()
	ctx := t.Context()
	ok := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	watcher := kit.Must(objects.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a"}))(t)
	defer watcher.Stop()
	created := kit.Must(objects.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}))(t)
	created.SetLabels(map[string]string{"l": "x"})
	ok(objects.Update(ctx, created, metav1.UpdateOptions{}))
	ok(objects.Apply(ctx, "a", &unstructured.Unstructured{Object: kit.With(object, "y", "metadata", "annotations", "a")},
		metav1.ApplyOptions{FieldManager: "m"}))
	ok(objects.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"l":"z"}}}`), metav1.PatchOptions{}))
	got := kit.Must(objects.Get(ctx, "a", metav1.GetOptions{}))(t)
	kit.Equal(t, []any{got.GetLabels()["l"], got.GetAnnotations()["a"]}, []any{"z", "y"})
	list := kit.Must(objects.List(ctx, metav1.ListOptions{LabelSelector: "l=z"}))(t)
	kit.Equal(t, len(list.Items), 1)
	ok(nil, objects.Delete(ctx, "a", metav1.DeleteOptions{}))
	ok(nil, objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "l=z"}))
	_, err := objects.Get(ctx, "a", metav1.GetOptions{})
	kit.Equal(t, errors.IsNotFound(err), true)
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Modified, watch.Deleted} {
		if event := <-watcher.ResultChan(); event.Type != want {
			t.Errorf("the event is %+v instead of %s", event, want)
		}
	}
}

// wire records the media types of requests and responses.
type wire struct {
	http.RoundTripper
	mu   sync.Mutex
	seen []string
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(r)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, r.Header.Get("Content-Type")+" -> "+response.Header.Get("Content-Type"))
	}
	return response, err
}
