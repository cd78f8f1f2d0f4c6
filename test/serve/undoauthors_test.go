package serve

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	undos "github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore/fieldpath"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestUndoAuthors creates, changes and deletes an object of every kind that can be created. What the server stores of it must not depend
// on who writes, or else an undo leaves the object alone: it would lend its user's name. All others come back, with a reason for each that
// does not.
func TestUndoAuthors(t *testing.T) {
	t.Parallel()
	s := serve(t, everykind.MoreFlags)
	jane, joe := fillerAs(t, s.Kubeconfig, "jane"), fillerAs(t, s.Kubeconfig, "joe")
	all, err := everykind.All()
	harness.Must(t, err)
	derived := map[schema.GroupKind]bool{}
	for _, object := range all {
		if dependsOnAuthor(t, jane, joe, object) {
			derived[object.GroupVersionKind().GroupKind()] = true
		}
	}
	for _, kind := range creatable(t, jane) {
		if !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GroupVersionKind().GroupKind() == kind }) {
			t.Errorf("everykind has no %s", kind)
		}
	}
	if want := map[schema.GroupKind]bool{{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: true}; !maps.Equal(derived, want) {
		t.Errorf("who writes decides what is stored of %v, want %v: see keptOut in server/undo", derived, want)
	}
	bringsBack(t, s, jane, all, derived)
}

// fillerAs creates objects as an administrator of that name.
func fillerAs(t *testing.T, kubeconfig, name string) *everykind.Filler {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	harness.Must(t, err)
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{UserName: name, UID: "uid-" + name, Groups: []string{"system:masters", name + "s"}, Extra: map[string][]string{"example.com/desk": {name}}}
	f, err := everykind.New(config)
	harness.Must(t, err)
	return f
}

// creatable returns the kinds of all objects that can be created and read.
func creatable(t *testing.T, f *everykind.Filler) (kinds []schema.GroupKind) {
	t.Helper()
	_, lists, err := f.Client.Discovery().ServerGroupsAndResources()
	if len(lists) == 0 {
		t.Fatal(err) // one group, of an APIService, is not there
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		harness.Must(t, err)
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "get") {
				kinds = append(kinds, version.WithKind(r.Kind).GroupKind())
			}
		}
	}
	return kinds
}

// dependsOnAuthor creates an object, as jane in the end, changes it, and reports whether anything but chance makes a difference between
// what jane and joe write.
func dependsOnAuthor(t *testing.T, jane, joe *everykind.Filler, object *unstructured.Unstructured) bool {
	t.Helper()
	ctx := t.Context()
	create := func(f *everykind.Filler) (*unstructured.Unstructured, error) {
		return f.Make(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	var differ []string
	first, err := create(jane)
	if !apierrors.IsAlreadyExists(err) {
		harness.Must(t, err)
		differ = differences(t, first, create, jane, joe)
		_, err = jane.Make(ctx, object, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	change := func(f *everykind.Filler) (*unstructured.Unstructured, error) {
		objects, err := f.Of(object)
		harness.Must(t, err)
		return objects.Patch(ctx, object.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"changed":"yes"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
	first, err = change(jane)
	harness.Must(t, err)
	differ = append(differ, differences(t, first, change, jane, joe)...)
	if len(differ) > 0 {
		t.Logf("%s: who writes decides %v", object.GetKind(), differ)
	}
	return len(differ) > 0
}

var element = regexp.MustCompile(`\[[^]]*\]`)

// differences returns in which fields joe's object differs from the first one of jane, unless her next one does so, too.
func differences(t *testing.T, first *unstructured.Unstructured, write func(*everykind.Filler) (*unstructured.Unstructured, error), jane, joe *everykind.Filler) (paths []string) {
	t.Helper()
	of := func(f *everykind.Filler) (paths []string) {
		object, err := write(f)
		harness.Must(t, err)
		object.SetManagedFields(first.GetManagedFields())
		for _, d := range fieldpath.DifferencesOf(first.Object, object.Object) {
			paths = append(paths, element.ReplaceAllString(d.Path, "[]"))
		}
		return paths
	}
	joes := of(joe)
	chance := append(of(jane), ".metadata.creationTimestamp") // jane's comes later, so it has other times, too
	return slices.DeleteFunc(joes, func(path string) bool { return slices.Contains(chance, path) })
}

// bringsBack deletes all objects but namespaces, as jane, and brings back what may come back, as root.
func bringsBack(t *testing.T, s *sqube.Server, jane *everykind.Filler, all []*unstructured.Unstructured, derived map[schema.GroupKind]bool) {
	t.Helper()
	ctx := t.Context()
	_, err := jane.Client.CoreV1().Pods("prod").Patch(ctx, "web-1", types.StrategicMergePatchType,
		[]byte(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"i"}]}}`), metav1.PatchOptions{}, "ephemeralcontainers")
	harness.Must(t, err)
	before, err := jane.Client.CoreV1().ConfigMaps("prod").List(ctx, metav1.ListOptions{})
	harness.Must(t, err)
	now := int64(0)
	for _, object := range slices.Backward(all) {
		if object.GetKind() == "Namespace" {
			continue
		}
		objects, err := jane.Of(object)
		harness.Must(t, err)
		err = objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
		if !apierrors.IsNotFound(err) {
			harness.Must(t, err)
		}
	}
	stdout, stderr, _ := sqube.Run(t, []string{"undo", "--kubeconfig", s.Kubeconfig, "--user", "jane", "--after-revision", before.ResourceVersion, "--apply", "-o", "json"})
	var answer undos.Undo
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil {
		t.Fatalf("%v: %s %s", err, stdout, stderr)
	}
	steps := map[string]*undos.Step{}
	for i, step := range answer.Status.Plan {
		steps[step.Object.Kind+" "+step.Object.Name] = &answer.Status.Plan[i]
		if step.Result == undos.Failed || step.Result == undos.NotTried || step.Action == undos.Leave && step.Reason == "" {
			t.Errorf("%s %s: %s, %s %s", step.Object.Kind, step.Object.Name, step.Action, step.Result, step.Message)
		}
	}
	for _, object := range all {
		step := steps[object.GetKind()+" "+object.GetName()]
		if step == nil {
			t.Errorf("no step names %s %s", object.GetKind(), object.GetName())
			continue
		}
		if derived[object.GroupVersionKind().GroupKind()] && step.Action != undos.Leave {
			t.Errorf("%s of %s %s", step.Action, object.GetKind(), object.GetName())
		}
		t.Log(object.GetKind(), object.GetName(), step.Action, step.Reason, step.Warnings)
	}
}
