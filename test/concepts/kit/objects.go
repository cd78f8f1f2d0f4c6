package kit

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
)

// Objects and helpers for the sections on writes.

// Manifest returns an object given in YAML; text is a format for args.
func Manifest(text string, args ...any) map[string]any {
	var object map[string]any
	if err := yaml.Unmarshal(fmt.Appendf(nil, text, args...), &object); err != nil {
		panic(err) // a mistake in the test
	}
	return object
}

// With returns a copy of the object in which the field has the value.
func With(object map[string]any, value any, fields ...string) map[string]any {
	changed := Manifest("%s", JSON(object))
	if err := unstructured.SetNestedField(changed, Manifest("value: %s", JSON(value))["value"], fields...); err != nil {
		panic(err)
	}
	return changed
}

// JSON returns a value as JSON, which is also YAML on one line.
func JSON(value any) []byte {
	text, err := yaml.Marshal(value)
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		panic(err)
	}
	return text
}

// ConfigMap returns a ConfigMap, the object that most promises use.
func ConfigMap(name string, data map[string]string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data}
}

// Pod returns a Pod that is on a node as far as the API knows, but that no kubelet runs.
func Pod(name string) map[string]any {
	return Manifest(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: node, automountServiceAccountToken: false,
		containers: [{name: c, image: i}]}}`, name)
}

// Deployment returns a Deployment with three replicas.
func Deployment(name string) map[string]any {
	return Manifest(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {replicas: 3, selector: {matchLabels: {app: %[1]s}},
		template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: i}]}}}}`, name)
}

// Service returns a Service with port 80.
func Service(name string) map[string]any {
	return Manifest(`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {selector: {app: a}, ports: [{port: 80}]}}`, name)
}

// MakeDefaultServiceAccount creates the namespace's default account, which pods need, unless a controller was faster.
func (c *Cluster) MakeDefaultServiceAccount(t testing.TB) {
	t.Helper()
	account := Manifest("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}")
	c.Post(t, c.Path("v1", "serviceaccounts"), account).Want(t, http.StatusCreated, http.StatusConflict)
}

// DefineWidgets defines a custom resource only for the promise, with the schema given in YAML and the subresources status and
// scale, and returns its group and version. It is deleted when the test ends.
func (c *Cluster) DefineWidgets(t testing.TB, schema string) string {
	t.Helper()
	group := c.Namespace + ".example.com"
	c.Post(t, Definitions, WidgetDefinition(group, schema)).Created(t)
	c.DeleteAtEnd(t, Definitions+"/widgets."+group)
	harness.Eventually(t, "the custom resource is served and discovered", func() bool {
		return c.Get(t, c.Path(group+"/v1", "widgets")).Code == http.StatusOK && c.Get(t, "/apis/"+group+"/v1").Code == http.StatusOK
	})
	return group + "/v1"
}

// DeleteAtEnd deletes the object at a path when the test ends: with -against, the server outlives the test.
func (c *Cluster) DeleteAtEnd(t testing.TB, path string) {
	t.Cleanup(func() {
		request := Must(http.NewRequest(http.MethodDelete, c.URL+path, nil))(t)
		response := Must(c.HTTP.Do(request))(t)
		response.Body.Close()
	})
}

// WidgetDefinition returns a definition of widgets in a group, with status and scale.
func WidgetDefinition(group, schema string) map[string]any {
	return CustomResource{Group: group}.Definition(map[string]any{
		"name": "v1", "served": true, "schema": map[string]any{"openAPIV3Schema": Manifest("%s", schema)},
		"subresources": Manifest("{status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}"),
	})
}

// AnySchema allows anything in a custom resource.
const AnySchema = "{type: object, x-kubernetes-preserve-unknown-fields: true}"

// Widget returns a custom resource as defined by DefineWidgets.
func Widget(groupVersion, name string) map[string]any {
	return Manifest("{apiVersion: %s, kind: Widget, metadata: {name: %s}}", groupVersion, name)
}

// WaitGone waits until the object does not exist.
func (c *Cluster) WaitGone(t testing.TB, path string) {
	t.Helper()
	harness.Eventually(t, path+" is gone", func() bool { return c.Get(t, path).Code == http.StatusNotFound })
}

// Must takes what a call returns, and then the test: Must(call())(t) is the value, and an error ends the test.
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		harness.Must(t, err)
		return value
	}
}

// Equal fails the test if the values differ; both may be decoded JSON.
func Equal(t testing.TB, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected value (-want +got):\n%s", diff)
	}
}

// WriteFile writes a file that is removed when the test ends, and returns its path.
func WriteFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// ObjectOf returns a body as an object.
func ObjectOf(body any) map[string]any {
	o, _ := body.(map[string]any)
	return o
}

// PodTemplate returns an object that no controller or other part of a server uses.
func PodTemplate(name string) map[string]any {
	return Manifest("{apiVersion: v1, kind: PodTemplate, metadata: {name: %s}, template: {spec: {containers: [{name: c, image: i}]}}}", name)
}

// WithFinalizers returns a ConfigMap with finalizers.
func WithFinalizers(name string, finalizers ...string) map[string]any {
	return With(ConfigMap(name, map[string]string{"a": "1"}), finalizers, "metadata", "finalizers")
}

// SetFinalizers replaces an object's finalizers.
func (c *Cluster) SetFinalizers(t testing.TB, path string, finalizers ...string) Answer {
	t.Helper()
	return c.Patch(t, MergePatch, path, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
}

// StructuralSchema is a schema with known fields, one field that preserves everything, and one that is an object with metadata.
const StructuralSchema = `{type: object, properties: {status: {type: object, properties: {replicas: {type: integer}}}, spec: {type: object, properties: {
	replicas: {type: integer}, free: {type: object, x-kubernetes-preserve-unknown-fields: true},
	template: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object, properties: {a: {type: string}}}}}}}}}`

// CollectionOf returns the path of the collection of the object at a path.
func CollectionOf(path string) string { return path[:len(path)-len("/a")] }

// Namespace returns a namespace to create.
func Namespace(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
}

// Secret returns an object of a collection in which controllers create nothing.
func Secret(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}}
}

// Apply applies an object, in YAML or as a map, with a field manager. The manager "name&force=true" forces it.
func (c *Cluster) Apply(t testing.TB, path, manager string, object any) Answer {
	t.Helper()
	return c.Patch(t, ApplyPatch, path+"?fieldManager="+manager, object)
}

// MakePodWithVolumes creates a Pod on a node that mounts a Secret, a ConfigMap and a claim, all with the Pod's name.
func (c *Cluster) MakePodWithVolumes(t testing.TB, name, node string) *corev1.Pod {
	t.Helper()
	c.Post(t, c.Path("v1", "secrets"), map[string]any{"metadata": map[string]any{"name": name}}).Created(t)
	c.Post(t, c.Path("v1", "configmaps"), ConfigMap(name, nil)).Created(t)
	c.Post(t, c.Path("v1", "persistentvolumeclaims"), Manifest(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s},
		spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}}`, name)).Created(t)
	c.Post(t, c.Path("v1", "pods"), Manifest(`{apiVersion: v1, kind: Pod, metadata: {name: %[1]s}, spec: {nodeName: %[2]s, serviceAccountName: robot, containers: [{name: c, image: i}],
		volumes: [{name: s, secret: {secretName: %[1]s}}, {name: m, configMap: {name: %[1]s}}, {name: v, persistentVolumeClaim: {claimName: %[1]s}}]}}`, name, node)).Created(t)
	pod := Must(c.Kube.CoreV1().Pods(c.Namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
	return pod
}
