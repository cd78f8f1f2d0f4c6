package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// encryptSecrets is an EncryptionConfiguration.
const encryptSecrets = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
	{"resources": ["secrets"], "providers": [{"aesgcm": {"keys": [{"name": "one", "secret": "MDEyMzQ1Njc4OWFiY2RlZg=="}]}}]}]}`

// TestHistory prints the history and past versions of objects while sqube serves. Tests of the store read them on each engine.
func TestHistory(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "encryption.yaml")
	harness.Must(t, os.WriteFile(keys, []byte(encryptSecrets), 0o600))
	datastore := harness.SQLite(t)
	s := serve(t, []string{"--datastore", datastore, "--encryption-provider-config", keys})
	c := client(t, s.Kubeconfig)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door", Labels: map[string]string{"a.b/c": "d"}}, StringData: map[string]string{"code": "1234"}}
	created, err := c.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{FieldManager: "maker"})
	harness.Must(t, err)
	patch := []byte(`{"metadata": {"labels": {"a.b/c": "e"}}, "stringData": {"code": "4321", "knock": "twice"}}`)
	if _, err := c.CoreV1().Secrets("default").Patch(t.Context(), "door", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "changer"}); err != nil {
		t.Fatal(err)
	}
	harness.Must(t, c.CoreV1().Secrets("default").Delete(t.Context(), "door", metav1.DeleteOptions{}))

	database := []string{"--datastore", datastore, "--encryption-provider-config", keys}
	history := succeeds(t, append([]string{"history", "secrets", "door"}, database...))
	want := `^REVISION +TIME +OPERATION +USER +MANAGER +CHANGED
\d+ +20\S+Z +create +kubernetes-admin +maker +-
\d+ +20\S+Z +update +kubernetes-admin +changer +\.data\.code \.data\.knock \.metadata\.labels\["a\.b/c"\]
\d+ +20\S+Z +delete +kubernetes-admin +\S+ +-
$`
	if !regexp.MustCompile(want).MatchString(history) {
		t.Errorf("the history is\n%s", history)
	}
	if !strings.HasPrefix(strings.Split(history, "\n")[1], created.ResourceVersion+" ") {
		t.Errorf("the history does not start with revision %s:\n%s", created.ResourceVersion, history)
	}

	historyFlags(t, database)

	stdout, stderr, code := sqube.Run(t, append([]string{"show", "secret/door"}, database...))
	note := `^secrets door was deleted at 20\S+Z by kubernetes-admin \(revision \d+\)\. This is its last version, of revision \d+\.\n$`
	var gone corev1.Secret
	if err := yaml.UnmarshalStrict([]byte(stdout), &gone); err != nil || code != 0 || string(gone.Data["code"]) != "4321" || !regexp.MustCompile(note).MatchString(stderr) {
		t.Errorf("the deleted object is shown with %d as\n%s%s", code, stdout, stderr)
	}

	// A past version can be created again.
	shown := succeeds(t, append([]string{"show", "secrets/door", "-n", "default", "--at", created.ResourceVersion}, database...))
	var again corev1.Secret
	if err := yaml.UnmarshalStrict([]byte(shown), &again); err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	restored, err := c.CoreV1().Secrets("default").Create(t.Context(), &again, metav1.CreateOptions{})
	if err != nil || string(restored.Data["code"]) != "1234" || restored.Labels["a.b/c"] != "d" || restored.UID == created.UID {
		t.Errorf("created again: %+v, %v", restored, err)
	}
	whole := succeeds(t, append([]string{"show", "--whole", "secrets", "door"}, database...))
	if !strings.Contains(whole, string(restored.UID)) {
		t.Errorf("not all of it:\n%s", whole)
	}
	if text := succeeds(t, append([]string{"show", "namespaces", "default"}, database...)); !strings.Contains(text, "kind: Namespace") {
		t.Errorf("a cluster-scoped object is shown as\n%s", text)
	}

	withoutKeys(t, datastore, database)
	namesOfResources(t, s)
	refuses(t, "secrets none: no version of it is kept", append([]string{"history", "secrets", "none"}, database...))
	refuses(t, "secrets door: no version of it is kept", append([]string{"history", "secrets", "door", "-n", "kube-system"}, database...))
	refuses(t, "secrets door: it did not exist at that revision", append([]string{"show", "secrets", "door", "--at", "2"}, database...))
	refuses(t, "in the future", append([]string{"show", "secrets", "door", "--at", "1000000"}, database...))
	refuses(t, "want a resource and a name, such as deployments.apps web", []string{"show", "secrets"})
	refuses(t, "want a resource and a name, such as deployments.apps web", []string{"history"})
	nowhere := "sqlite://" + filepath.Join(t.TempDir(), "none.db")
	refuses(t, "no such file", []string{"history", "pods", "a", "--datastore", nowhere})
	if made, err := os.ReadDir(filepath.Dir(strings.TrimPrefix(nowhere, "sqlite://"))); err != nil || len(made) > 0 {
		t.Errorf("looking for a database has created %v, %v", made, err)
	}
}

// historyFlags gives flags to sqube history of the secret "door". database are those that it always needs.
func historyFlags(t *testing.T, database []string) {
	t.Helper()
	names := func(args ...string) []string { // the operations
		var changes []struct {
			Operation, User, Manager string
			Changed                  []string
		}
		harness.Must(t, json.Unmarshal([]byte(succeeds(t, append(append([]string{"history", "secrets", "door", "-o", "json"}, args...), database...))), &changes))
		var operations []string
		for _, c := range changes {
			if c.User != "kubernetes-admin" || c.Manager == "" || len(c.Changed) != map[string]int{"update": 3}[c.Operation] {
				t.Errorf("JSON has %+v", c)
			}
			operations = append(operations, c.Operation)
		}
		return operations
	}
	for flags, want := range map[string]string{
		"": "create update delete", "--no-controllers": "create update delete", "--user=kubernetes-admin --since=1h": "create update delete",
		"--user=jane": "", "--since=2001-01-01T00:00:00Z": "create update delete", "--since=0s": "",
	} {
		if got := strings.Join(names(strings.Fields(flags)...), " "); got != want {
			t.Errorf("history %s has %q, want %q", flags, got, want)
		}
	}
	refuses(t, `--since must be a duration like 2h, or a time like 2026-11-21T10:00:00Z, not "yesterday"`, append([]string{"history", "secrets", "door", "--since=yesterday"}, database...))
	refuses(t, `--output must be json, not "yaml"`, append([]string{"history", "secrets", "door", "-o", "yaml"}, database...))
}

// withoutKeys tests the commands that read a database with the encrypted secret "door" when they are not given its keys. database are
// the flags with them.
func withoutKeys(t *testing.T, datastore string, database []string) {
	t.Helper()
	const flag = "it is encrypted: give the file that its server has with --encryption-provider-config"
	for _, command := range []string{"show", "history"} {
		refuses(t, "secrets door: "+flag, []string{command, "secrets", "door", "--datastore", datastore})
	}
	stdout, stderr, code := sqube.Run(t, []string{"check", "--datastore", datastore})
	want := regexp.MustCompile(`the values of \d+ rows of \d+ are encrypted and were not checked: give .* --encryption-provider-config\n$`)
	if stdout != "" || code != 1 || strings.Contains(stderr, "something is wrong") || !want.MatchString(stderr) {
		t.Errorf("without the keys, the check ends with %d and\n%s%s", code, stdout, stderr)
	}
	if text := succeeds(t, append([]string{"check"}, database...)); !strings.Contains(text, "nothing wrong") {
		t.Errorf("with the keys, the check says %s", text)
	}
}

// namesOfResources names built-in and custom resources in all ways in which kubectl does, each to one of two commands.
func namesOfResources(t *testing.T, s *sqube.Server) {
	commands := []string{"show", "history"}
	c := client(t, s.Kubeconfig).CoreV1().RESTClient()
	create := func(path, object string) error {
		return c.Post().AbsPath(path).SetHeader("Content-Type", "application/yaml").Body([]byte(object)).Do(t.Context()).Error()
	}
	harness.Must(t, create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: boats.demo.example.com}, spec: {group: demo.example.com, scope: Namespaced, names: {kind: Boat, plural: boats, shortNames: [bt]},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`))
	harness.Eventually(t, "the definition is served", func() bool {
		return create("/apis/demo.example.com/v1/namespaces/default/boats", "{apiVersion: demo.example.com/v1, kind: Boat, metadata: {name: sloop}}") == nil
	})
	harness.Must(t, create("/apis/apps/v1/namespaces/default/deployments", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web},
  spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}`))
	harness.Must(t, create("/apis/events.k8s.io/v1/namespaces/default/events", `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: met}, regarding: {namespace: default, kind: Pod, name: x},
  reportingController: c, reportingInstance: i, action: a, reason: r, type: Normal, eventTime: "2026-11-21T10:00:00.000000Z"}`))
	for stored, names := range map[string]string{
		"web":   "deployments deployment deploy Deployment deployments.apps deploy.apps deployments.v1.apps deployment.v1.apps",
		"sloop": "boats boat bt Boat boats.demo.example.com boats.v1.demo.example.com bt.demo.example.com",
		"met":   "events event ev events.events.k8s.io events.v1.events.k8s.io event.v1.",
	} {
		for i, name := range strings.Fields(names) {
			command := commands[i%2]
			if out := succeeds(t, []string{command, name, stored, "--datastore", s.Datastore}); !strings.Contains(out, "kind: ") && !strings.Contains(out, "create") {
				t.Errorf("sqube %s %s %s prints %s", command, name, stored, out)
			}
		}
	}
	refuses(t, "deployments.apps none: no version of it is kept", []string{"show", "deploy", "none", "--datastore", s.Datastore})
	refuses(t, "boots sloop: no version of it is kept: there is no such object, or it was deleted before what is kept; and no resource has that name (kubectl api-resources lists them)",
		[]string{"show", "boots", "sloop", "--datastore", s.Datastore})
}
