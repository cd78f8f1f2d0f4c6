package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// encrypted has Secrets and ConfigMaps encrypted.
const encrypted = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, configmaps]
  providers: [{aescbc: {keys: [{name: key, secret: c2VjcmV0IGlzIHNlY3VyZSwgSSB0aGluaywgb3Igbm8=}]}}]
`

// TestInformersHaveWhatTheAPIGives compares the server's informers of every resource, in all its versions, with client-go's: at first, after
// each object was changed, and after it was deleted.
func TestInformersHaveWhatTheAPIGives(t *testing.T) {
	config := filepath.Join(t.TempDir(), "encryption.yaml")
	harness.Must(t, os.WriteFile(config, []byte(encrypted), 0o600))
	here := map[schema.GroupVersionResource]cache.SharedIndexInformer{}
	built := make(chan struct{})
	follow := controllers.Controller{Name: "follower-controller", Build: func(_ context.Context, shared controllers.Shared) (func(context.Context), error) {
		defer close(built)
		_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(shared.As("follower")).ServerGroupsAndResources()
		for _, list := range lists {
			version, _ := schema.ParseGroupVersion(list.GroupVersion)
			for _, resource := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, []*metav1.APIResourceList{list}) {
				for _, r := range resource.APIResources {
					if made, err := shared.Informers.ForResource(version.WithResource(r.Name)); err == nil { // others are not in client-go
						here[version.WithResource(r.Name)] = made.Informer()
					}
				}
			}
		}
		return func(ctx context.Context) { <-ctx.Done() }, err
	}}
	s := servertest.Run(t, servertest.Options{Configure: func(o *server.Options) {
		o.Controllers, o.OtherControllers, o.Encryption.ConfigFile = append(o.Controllers, follow.Name), []controllers.Controller{follow}, config
		harness.Must(t, o.RuntimeConfig.Set("api/all=true"))
	}})
	typed := client(t, s)
	harness.Eventually(t, "Pods can be created", func() bool {
		_, err := typed.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	objects := manifests(t)
	resources := create(t, s, objects)
	<-built
	shared := informers.NewSharedInformerFactory(typed, 0)
	there := map[schema.GroupVersionResource]cache.SharedIndexInformer{}
	for resource := range here {
		made, err := shared.ForResource(resource)
		harness.Must(t, err)
		there[resource] = made.Informer()
	}
	if len(there) < 60 {
		t.Fatalf("only %d resources have informers", len(there))
	}
	shared.Start(t.Context().Done())
	same := func(when string) {
		t.Helper()
		for resource, theirs := range there {
			var differs string
			harness.Retry(t, fmt.Sprintf("%s %s", resource, when), func() error {
				differs = difference(here[resource], theirs)
				if differs == "" {
					return nil
				}
				return errors.New(differs)
			})
		}
	}
	same("at first")
	for i, object := range objects {
		if _, err := resources[i].Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"yes"}}}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("changing %s: %v", object.GetKind(), err)
		}
	}
	same("after a change")
	for i, object := range objects {
		if err := resources[i].Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting %s: %v", object.GetKind(), err)
		}
	}
	same("after a deletion")
}

// difference says what differs between the objects of two informers; "" if nothing does.
func difference(ours, theirs cache.SharedIndexInformer) string {
	if !ours.HasSynced() || !theirs.HasSynced() {
		return "an informer has not synced"
	}
	if a, b := len(ours.GetStore().ListKeys()), len(theirs.GetStore().ListKeys()); a != b {
		return fmt.Sprintf("%d objects instead of %d", a, b)
	}
	for _, want := range theirs.GetStore().List() {
		want := want.(runtime.Object).DeepCopyObject()
		m, err := meta.Accessor(want)
		if err != nil {
			return err.Error()
		}
		m.SetManagedFields(nil) // the server's informers leave them out
		got, ok, err := ours.GetStore().Get(want)
		switch {
		case err != nil || !ok:
			return fmt.Sprintf("no %s/%s: %v", m.GetNamespace(), m.GetName(), err)
		case reflect.TypeOf(got) != reflect.TypeOf(want) || !equality.Semantic.DeepEqual(got, want):
			return fmt.Sprintf("%s/%s is\n%+v instead of\n%+v", m.GetNamespace(), m.GetName(), got, want)
		}
	}
	return ""
}

// manifests reads an object of most kinds, with names.
func manifests(t *testing.T) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile("../../test/reads/testdata/objects.yaml")
	harness.Must(t, err)
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		}
		if text := fmt.Sprint(object.Object); strings.Contains(text, "CERTIFICATE") || strings.Contains(text, "REQUEST") {
			continue // needs a certificate
		}
		if object.GetName() == "" {
			object.SetName("rich")
		}
		object.SetAnnotations(map[string]string{"markup": `<b class="x">&amp;</b>`, "empty": ""})
		objects = append(objects, object)
	}
}

// create creates objects, and returns clients of their resources.
func create(t *testing.T, s *servertest.Server, objects []*unstructured.Unstructured) (resources []dynamic.ResourceInterface) {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(client(t, s).Discovery())
	harness.Must(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	all, err := dynamic.NewForConfig(s.Config)
	harness.Must(t, err)
	for _, object := range objects {
		mapping, err := mapper.RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
		harness.Must(t, err)
		var resource dynamic.ResourceInterface = all.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = all.Resource(mapping.Resource).Namespace("default")
		}
		if _, err := resource.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Errorf("creating %s: %v", object.GetKind(), err)
		}
		resources = append(resources, resource)
	}
	return resources
}
