package serve

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// onlyNewer are objects with something that Kubernetes 1.36 does not know, and one without. They need newerFlags.
var onlyNewer = []struct{ resource, object string }{
	{"v1/pods", `{apiVersion: v1, kind: Pod, metadata: {name: secretive}, spec: {containers: [{name: a, image: b}],
		volumes: [{name: plain, emptyDir: {}}, {name: closed, emptyDir: {mode: 0700}}]}}`},
	{"storage.k8s.io/v1/csinodes", `{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: plain}, spec: {drivers: []}}`},
	{"scheduling.k8s.io/v1beta1/workloads", `{apiVersion: scheduling.k8s.io/v1beta1, kind: Workload, metadata: {name: load},
		spec: {podGroupTemplates: [{name: all, schedulingPolicy: {basic: {}}}]}}`},
	{"lifecycle.k8s.io/v1alpha1/evictionrequests", `{apiVersion: lifecycle.k8s.io/v1alpha1, kind: EvictionRequest, metadata: {name: leave},
		spec: {requester: example.com/tester, intent: Eviction, target: {pod: {name: secretive, uid: UID}}}}`},
}

var newerFlags = []string{
	"--feature-gates=EmptyDirVolumeMode=true,GenericWorkload=true,EvictionRequestAPI=true",
	"--runtime-config=scheduling.k8s.io/v1beta1=true,lifecycle.k8s.io/v1alpha1=true",
}

// newerSchema is found in every database: history came after that version.
const newerSchema = `^- +- +the schema is \d+, and the last sqube with v1\.36 knows those up to 6$`

// TestCheckForThePreviousVersion asks whether the previous version can serve a database, before and after there are objects that it
// does not know. ConfigMaps are encrypted.
func TestCheckForThePreviousVersion(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "encryption.yaml")
	harness.Must(t, os.WriteFile(keys, []byte(strings.Replace(encryptSecrets, `"secrets"`, `"configmaps"`, 1)), 0o600))
	encrypted := []string{"--encryption-provider-config", keys}
	s := serve(t, append(encrypted, newerFlags...))
	settle(t, s)
	withoutKeys := []string{"check", "--for", "v1.36", "--data-dir", s.DataDir}
	check := append(withoutKeys, encrypted...)
	finds(t, withoutKeys, []string{newerSchema}, "are encrypted and were not checked: give the file that the server has")
	finds(t, check, []string{newerSchema}, "v1.36 does not know all of it: 1 findings in ")
	createNewer(t, s.Kubeconfig)
	wants := []string{
		newerSchema,
		`^\d+ +pods default/secretive +v1\.36 does not have the field \.spec\.volumes\[\*\]\.emptyDir\.mode$`,
		`^\d+ +workloads\.scheduling\.k8s\.io default/load +it is stored in version v1beta1, and v1\.36 knows v1alpha2$`,
		`^\d+ +evictionrequests\.lifecycle\.k8s\.io default/leave +v1\.36 does not have this resource$`,
	}
	finds(t, check, wants, "v1.36 does not know all of it: 4 findings in ")
	s.Stop(t)
	finds(t, check, wants, "v1.36 does not know all of it: 4 findings in ")
	backup := filepath.Join(t.TempDir(), "backup")
	succeeds(t, []string{"backup", backup, "--data-dir", s.DataDir})
	finds(t, append([]string{"check", backup, "--for", "1.36"}, encrypted...), wants, "v1.36 does not know all of it: 4 findings in ")
	refuses(t, "--for v1.35: this sqube knows only what v1.36 knows", []string{"check", "--for", "v1.35"})
	refuses(t, "leave out --repair", []string{"check", "--for", "v1.36", "--repair"})
}

// finds runs a check that prints one line for each of wants, in any order.
func finds(t *testing.T, check []string, wants []string, summary string) {
	t.Helper()
	stdout, stderr, code := sqube.Run(t, check)
	if code != 1 || !strings.Contains(stderr, summary) {
		t.Errorf("the check exits with code %d and %s", code, stderr)
	}
	if lines := strings.Count(stdout, "\n"); lines != 1+len(wants) {
		t.Errorf("the check prints %d lines:\n%s", lines, stdout)
	}
	for _, want := range wants {
		if !regexp.MustCompile("(?m)" + want).MatchString(stdout) {
			t.Errorf("no %s in\n%s", want, stdout)
		}
	}
}

func createNewer(t *testing.T, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	harness.Must(t, err)
	c, err := dynamic.NewForConfig(config)
	harness.Must(t, err)
	uid := ""
	for _, o := range onlyNewer {
		var object unstructured.Unstructured
		harness.Must(t, yaml.Unmarshal([]byte(strings.ReplaceAll(o.object, "UID", uid)), &object.Object))
		version, resource := filepath.Split(o.resource)
		gv, err := schema.ParseGroupVersion(strings.TrimSuffix(version, "/"))
		harness.Must(t, err)
		var create dynamic.ResourceInterface = c.Resource(gv.WithResource(resource))
		if resource != "csinodes" {
			create = c.Resource(gv.WithResource(resource)).Namespace("default")
		}
		created, err := create.Create(t.Context(), &object, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", o.resource, err)
		}
		if uid == "" {
			uid = string(created.GetUID()) // of the Pod
		}
	}
}
