package serve

import (
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
)

// encryptSecrets is an EncryptionConfiguration.
const encryptSecrets = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
	{"resources": ["secrets"], "providers": [{"aesgcm": {"keys": [{"name": "one", "secret": "MDEyMzQ1Njc4OWFiY2RlZg=="}]}}]}]}`

// TestHistory prints the history and past versions of objects while sqube serves.
func TestHistory(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(keys, []byte(encryptSecrets), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore, "--encryption-provider-config", keys})
		c := client(t, s.kubeconfig())
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door", Labels: map[string]string{"a.b/c": "d"}}, StringData: map[string]string{"code": "1234"}}
		created, err := c.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{FieldManager: "maker"})
		if err != nil {
			t.Fatal(err)
		}
		patch := []byte(`{"metadata": {"labels": {"a.b/c": "e"}}, "stringData": {"code": "4321", "knock": "twice"}}`)
		if _, err := c.CoreV1().Secrets("default").Patch(t.Context(), "door", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "changer"}); err != nil {
			t.Fatal(err)
		}
		if err := c.CoreV1().Secrets("default").Delete(t.Context(), "door", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		database := []string{"--datastore", engine.Datastore, "--encryption-provider-config", keys}
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

		refuses(t, "secrets door: it is encrypted, and --encryption-provider-config can't decrypt it", []string{"show", "secrets", "door", "--datastore", engine.Datastore})
		refuses(t, "secrets none: no version of it is kept", append([]string{"history", "secrets", "none"}, database...))
		refuses(t, "secrets door: no version of it is kept", append([]string{"history", "secrets", "door", "-n", "kube-system"}, database...))
		refuses(t, "secrets door: it did not exist at that revision", append([]string{"show", "secrets", "door", "--at", "2"}, database...))
		refuses(t, "in the future", append([]string{"show", "secrets", "door", "--at", "1000000"}, database...))
		refuses(t, "want a resource and a name, such as deployments.apps web", append([]string{"show", "secrets"}, database...))
	})
	nowhere := "sqlite://" + filepath.Join(t.TempDir(), "none.db")
	refuses(t, "no such file", []string{"history", "pods", "a", "--datastore", nowhere})
	if made, err := os.ReadDir(filepath.Dir(strings.TrimPrefix(nowhere, "sqlite://"))); err != nil || len(made) > 0 {
		t.Errorf("looking for a database has created %v, %v", made, err)
	}
}
