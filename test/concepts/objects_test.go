package concepts

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness/sqube"
)

// What the sections on writing write, and write with.

// manifest is an object written down in YAML; what is in args is formatted into it.
func manifest(text string, args ...any) map[string]any {
	var object map[string]any
	if err := yaml.Unmarshal(fmt.Appendf(nil, text, args...), &object); err != nil {
		panic(err) // a mistake in the test
	}
	return object
}

// with is a copy of the object in which the field has the value.
func with(object map[string]any, value any, fields ...string) map[string]any {
	changed := manifest("%s", asYAML(object))
	if err := unstructured.SetNestedField(changed, manifest("value: %s", asYAML(value))["value"], fields...); err != nil {
		panic(err)
	}
	return changed
}

// asYAML is JSON, which is YAML on one line.
func asYAML(value any) []byte {
	text, err := yaml.Marshal(value)
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		panic(err)
	}
	return text
}

// pod is one that runs on a node as far as the API knows: no kubelet ever will have it.
func pod(name string) map[string]any {
	return manifest(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: node, automountServiceAccountToken: false,
		containers: [{name: c, image: i}]}}`, name)
}

func deployment(name string) map[string]any {
	return manifest(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {replicas: 3, selector: {matchLabels: {app: %[1]s}},
		template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: i}]}}}}`, name)
}

func service(name string) map[string]any {
	return manifest(`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {selector: {app: a}, ports: [{port: 80}]}}`, name)
}

// serviceAccount makes the namespace's default one, without which there are no pods, unless a controller was faster.
func (c *cluster) serviceAccount(t testing.TB) {
	t.Helper()
	account := manifest("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}")
	c.post(t, c.path("v1", "serviceaccounts"), account).want(t, http.StatusCreated, http.StatusConflict)
}

// widgets defines a custom resource that is the promise's alone, with the schema given in YAML and the subresources status
// and scale, and returns its group and version. It goes with the test.
func (c *cluster) widgets(t testing.TB, schema string) string {
	t.Helper()
	group := c.namespace + ".example.com"
	c.post(t, definitions, widgetDefinition(group, schema)).created(t)
	c.deleteLater(t, definitions+"/widgets."+group)
	eventually(t, "the custom resource is served and told of", func() bool {
		return c.get(t, c.path(group+"/v1", "widgets")).Code == http.StatusOK && c.get(t, "/apis/"+group+"/v1").Code == http.StatusOK
	})
	return group + "/v1"
}

// deleteLater deletes what a path names when the test ends: with -against the server outlives it.
func (c *cluster) deleteLater(t testing.TB, path string) {
	t.Cleanup(func() {
		request, err := http.NewRequest(http.MethodDelete, c.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	})
}

func widgetDefinition(group, schema string) map[string]any {
	definition := manifest(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.%[1]s},
		spec: {group: %[1]s, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
		versions: [{name: v1, served: true, storage: true, schema: {},
		subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}}]}}`, group)
	versions := definition["spec"].(map[string]any)["versions"].([]any)
	versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": manifest("%s", schema)}
	return definition
}

// anySchema lets a custom resource be anything.
const anySchema = "{type: object, x-kubernetes-preserve-unknown-fields: true}"

// widget is a custom resource of what widgets has defined.
func widget(groupVersion, name string) map[string]any {
	return manifest("{apiVersion: %s, kind: Widget, metadata: {name: %s}}", groupVersion, name)
}

// eventually waits until what is said holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(requestTimeout); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

// gone waits until the object does not exist.
func (c *cluster) gone(t testing.TB, path string) {
	t.Helper()
	eventually(t, path+" is gone", func() bool { return c.get(t, path).Code == http.StatusNotFound })
}

// kubectl runs the real one in the promise's namespace, and returns what it printed, on both channels, and whether it succeeded.
func (c *cluster) kubectl(t testing.TB, stdin string, args ...string) (output string, ok bool) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthority: c.config.CAFile,
		CertificateAuthorityData: c.config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificate: c.config.CertFile, ClientCertificateData: c.config.CertData,
		ClientKey: c.config.KeyFile, ClientKeyData: c.config.KeyData, Token: c.config.BearerToken,
	}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: c.namespace}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), sqube.KubectlBinary(t), args...)
	command.Env = sqube.KubectlEnv(t, kubeconfig)
	command.Stdin = strings.NewReader(stdin)
	text, err := command.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(text), err == nil
}

// equal fails the test where a value is not the wanted one; both may be what JSON is decoded to.
func equal(t testing.TB, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("not what it should be (-want +got):\n%s", diff)
	}
}

// What most answers should be.

func (a answer) ok(t testing.TB) answer {
	t.Helper()
	return a.want(t, http.StatusOK)
}

func (a answer) created(t testing.TB) answer {
	t.Helper()
	return a.want(t, http.StatusCreated)
}

func (a answer) badRequest(t testing.TB, parts ...string) answer {
	t.Helper()
	return a.refused(t, http.StatusBadRequest, "BadRequest", parts...)
}

func (a answer) notFound(t testing.TB, parts ...string) answer {
	t.Helper()
	return a.refused(t, http.StatusNotFound, "NotFound", parts...)
}

func (a answer) conflict(t testing.TB, parts ...string) answer {
	t.Helper()
	return a.refused(t, http.StatusConflict, "Conflict", parts...)
}

func (a answer) invalid(t testing.TB, parts ...string) answer {
	t.Helper()
	return a.refused(t, http.StatusUnprocessableEntity, "Invalid", parts...)
}
