package concepts

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// "Encrypting Confidential Data at Rest" and "Using a KMS provider for data encryption": what is in the rows, and what is read
// from them, with one configuration after the other.
func TestEncryption(t *testing.T) {
	engines(t, func(t *testing.T, engine harness.Engine) {
		kms := newKMS(t, "key-1")
		kms.start(t)
		kmsV1 := startKMSv1(t)
		file := encryptionFile(t)
		file.write(t, encryptionOf(
			encrypts("secrets", aesgcm("old"), identityProvider),
			encrypts("configmaps", aescbc("old"), identityProvider),
			encrypts("podtemplates", identityProvider, aescbc("old")),
			encrypts("*.apps", secretbox("old")),
			encrypts("*.coordination.k8s.io", kmsProvider("v1", "plugin1", kmsV1)),
			encrypts("*.encryption-0.example.com", kmsProvider("v2", "plugin2", kms.endpoint)),
			encrypts("*.*", aesgcm("rest"))))
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore,
			Args: []string{"--feature-gates=KMSv1=true", "--encryption-provider-config", file.path}})
		e := &encrypted{newCluster(t, server.Config(t), server, 0), rows{harness.OpenDatabase(t, engine)}}
		e.widgets(t, anySchema)

		e.isEncrypted(t)
		e.isRead(t)
		e.isHealthy(t)

		server.Stop(t)
		kms.keyID.Store("key-2")
		file.write(t, encryptionOf(
			encrypts("secrets", secretbox("new"), aesgcm("old")),
			encrypts("podtemplates", identityProvider),
			encrypts("configmaps", identityProvider, aescbc("old")),
			encrypts("*.apps", aesgcm("new"), secretbox("old")),
			encrypts("*.coordination.k8s.io", aescbc("new"), kmsProvider("v1", "plugin1", kmsV1)),
			encrypts("*.encryption-0.example.com", kmsProvider("v2", "plugin2", kms.endpoint)),
			encrypts("*.*", aesgcm("rest"))))
		server.Start(t)
		e.isRotated(t)

		server.Stop(t)
		e.moveRow(t)
		file.write(t, encryptionOf(
			encrypts("secrets", secretbox("new")),
			encrypts("podtemplates", aesgcm("other")),
			encrypts("configmaps", identityProvider, aescbc("old")),
			encrypts("*.apps", aesgcm("other")),
			encrypts("*.coordination.k8s.io", aescbc("new"), kmsProvider("v1", "plugin1", kmsV1)),
			encrypts("*.encryption-0.example.com", identityProvider),
			encrypts("*.*", aesgcm("rest"))))
		server.Start(t)
		e.isRefused(t)
	})
}

// encrypted is a server whose configuration of encryption changes.
type encrypted struct {
	*cluster
	rows rows
}

// never is in what is encrypted, and so in no row.
const never = "never-in-the-clear"

// encryptedKinds are objects called "a" that have never in them, and how they are encrypted by the three configurations;
// "" for not.
func (e *encrypted) encryptedKinds() []encryptedKind {
	group := e.namespace + ".example.com"
	kind := func(statement, groupVersion, resource, first, second, object string) encryptedKind {
		return encryptedKind{statement, e.path(groupVersion, resource), resource, manifest("%s", object), first, second}
	}
	const metadata = "metadata: {name: a, labels: {l: " + never + "}, annotations: {a: " + never + "}}"
	return []encryptedKind{
		kind("the provider aesgcm encrypts", "v1", "secrets", "k8s:enc:aesgcm:v1:old:", "k8s:enc:secretbox:v1:new:",
			"{apiVersion: v1, kind: Secret, type: "+never+"/type, stringData: {k: "+never+"}, "+metadata+"}"),
		kind("the provider aescbc encrypts", "v1", "configmaps", "k8s:enc:aescbc:v1:old:", "",
			"{apiVersion: v1, kind: ConfigMap, data: {k: "+never+"}, "+metadata+"}"),
		kind("the provider secretbox encrypts, here all of a group", "apps/v1", "controllerrevisions", "k8s:enc:secretbox:v1:old:", "k8s:enc:aesgcm:v1:new:",
			"{apiVersion: apps/v1, kind: ControllerRevision, revision: 1, data: {k: "+never+"}, "+metadata+"}"),
		kind("a KMS plugin of version 1 encrypts, where the gate KMSv1 is open", "coordination.k8s.io/v1", "leases", "k8s:enc:kms:v1:plugin1:", "k8s:enc:aescbc:v1:new:",
			"{apiVersion: coordination.k8s.io/v1, kind: Lease, "+metadata+"}"),
		kind("a KMS plugin of version 2 encrypts, here custom resources", group+"/v1", "widgets", "k8s:enc:kms:v2:plugin2:", "k8s:enc:kms:v2:plugin2:",
			"{apiVersion: "+group+"/v1, kind: Widget, spec: {k: "+never+"}, "+metadata+"}"),
		kind("the wildcard *.* is for all that no other rule names", "networking.k8s.io/v1", "networkpolicies", "k8s:enc:aesgcm:v1:rest:", "k8s:enc:aesgcm:v1:rest:",
			"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {}}, "+metadata+"}"),
	}
}

type encryptedKind struct {
	statement, collection, resource string
	object                          map[string]any
	first, second                   string // how the ciphertext begins
}

func (e *encrypted) isEncrypted(t *testing.T) {
	for _, kind := range e.encryptedKinds() {
		t.Run(kind.statement, func(t *testing.T) {
			e.post(t, kind.collection, kind.object).want(t, http.StatusCreated)
			stored := e.rows.live(t, kind.resource, e.namespace, "a")
			stored.encryptedBy(t, kind.first)
			if text := stored.everything(); strings.Contains(text, never) {
				t.Errorf("the row has plain text in it: %s", text)
			}
		})
	}
	t.Run("a resource whose first provider is identity is not encrypted", func(t *testing.T) {
		e.post(t, e.path("v1", "podtemplates"), with(inert("a"), map[string]any{"a": "clear"}, "metadata", "annotations")).want(t, http.StatusCreated)
		if stored := e.rows.live(t, "podtemplates", e.namespace, "a"); !strings.Contains(stored.value, `"a":"clear"`) {
			t.Errorf("the row is %s", stored.everything())
		}
	})
	policy := with(e.encryptedKinds()[5].object, "b", "metadata", "name")
	e.post(t, e.path("networking.k8s.io/v1", "networkpolicies"), policy).want(t, http.StatusCreated)
	t.Run("what an object was before is ciphertext too", func(t *testing.T) {
		path := e.path("v1", "secrets", "a")
		e.patch(t, mergePatch, path, `{"metadata":{"annotations":{"b":"`+never+`"}}}`).want(t, http.StatusOK)
		versions := e.rows.history(t, "secrets", e.namespace, "a")
		if len(versions) != 2 {
			t.Errorf("there are %d versions", len(versions))
		}
		for _, value := range versions {
			(row{value: value}).encryptedBy(t, "k8s:enc:aesgcm:v1:old:")
		}
	})
}

func (e *encrypted) isRotated(t *testing.T) {
	kinds := e.encryptedKinds()
	for _, kind := range kinds {
		before := e.rows.live(t, kind.resource, e.namespace, "a")
		got := e.get(t, kind.collection+"/a")
		t.Run(kind.resource+" encrypted as the former configuration said stay readable", func(t *testing.T) {
			if got.want(t, http.StatusOK); !bytes.Contains(got.Body, []byte(never)) {
				t.Errorf("the answer is %s", got.Body)
			}
			before.encryptedBy(t, kind.first)
		})
		changes := kind.resource != "networkpolicies"
		statement := kind.resource + " are encrypted anew by an update that changes nothing"
		if !changes {
			statement = kind.resource + ", whose key is still the first, are not written by an update that changes nothing"
		}
		t.Run(statement, func(t *testing.T) {
			if kind.resource == "secrets" { // as the documents say it
				objects, _ := e.kubectl(t, "", "get", "secrets", "-A", "-o", "json")
				if output, ok := e.kubectl(t, objects, "replace", "-f", "-"); !ok {
					t.Fatal(output)
				}
			} else {
				e.put(t, kind.collection+"/a", got.Body).want(t, http.StatusOK)
			}
			if after := e.get(t, kind.collection+"/a").version(t); (after != got.version(t)) != changes {
				t.Errorf("the resourceVersion was %s and is %s", got.version(t), after)
			}
			e.rows.live(t, kind.resource, e.namespace, "a").encryptedBy(t, kind.second)
		})
	}
	t.Run("a resource whose first provider is identity is decrypted by that, and can be looked into again", func(t *testing.T) {
		stored := e.rows.live(t, "configmaps", e.namespace, "a")
		if want := `"l":"` + never + `"`; !strings.Contains(stored.value, want) || !strings.Contains(stored.labels, want) {
			t.Errorf("the row is %s", stored.everything())
		}
	})
	t.Run("a KMS plugin's new key is used for what is written from then on", func(t *testing.T) {
		stored := e.rows.live(t, "widgets", e.namespace, "a")
		if ciphertext := stored.ciphertext(t); !bytes.Contains(ciphertext, []byte("key-2")) {
			t.Errorf("the key is not named in %q", ciphertext)
		}
	})
}

// moveRow makes the network policy "b" hold what "a" does.
func (e *encrypted) moveRow(t *testing.T) {
	a := e.rows.live(t, "networkpolicies", e.namespace, "a")
	e.rows.edit(t, "networkpolicies", e.namespace, "b", a.value)
}

func (e *encrypted) isRefused(t *testing.T) {
	revisions := e.path("apps/v1", "controllerrevisions")
	key := "/apps/controllerrevisions/" + e.namespace + "/a"
	t.Run("an object whose key is gone is answered with 500 that names it", func(t *testing.T) {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/yaml", tableOf} {
			got := e.send(t, http.MethodGet, revisions+"/a", header{"Accept", accept}, nil).want(t, http.StatusInternalServerError)
			if !bytes.Contains(got.Body, []byte(key)) || bytes.Contains(got.Body, []byte(never)) {
				t.Errorf("%s: the answer is %s", accept, got.Body)
			}
		}
		e.get(t, revisions+"/a").refused(t, http.StatusInternalServerError, "InternalError", key, "no matching key was found")
	})
	t.Run("a list with such an object is answered with 500", func(t *testing.T) {
		e.get(t, revisions).refused(t, http.StatusInternalServerError, "InternalError", key)
		e.get(t, revisions+"?limit=1").refused(t, http.StatusInternalServerError, "InternalError", key)
	})
	t.Run("a watch that begins with such an object is told by an event of type ERROR", func(t *testing.T) {
		event := e.watch(t, revisions+"?watch=true").next(t)
		if message := fmt.Sprint(event.Object["message"]); event.Type != "ERROR" || !strings.Contains(message, key) {
			t.Errorf("the event is %v", event)
		}
	})
	t.Run("such an object can be neither changed nor deleted, but created elsewhere", func(t *testing.T) {
		e.patch(t, mergePatch, revisions+"/a", `{"metadata":{"labels":{"a":"b"}}}`).refused(t, http.StatusInternalServerError, "InternalError", key)
		e.delete(t, revisions+"/a").refused(t, http.StatusInternalServerError, "InternalError", key)
		e.post(t, revisions, manifest("{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: b}, revision: 1, data: {k: v}}")).want(t, http.StatusCreated)
		e.rows.live(t, "controllerrevisions", e.namespace, "b").encryptedBy(t, "k8s:enc:aesgcm:v1:other:")
	})
	t.Run("ciphertext is not taken for an object where there is no provider for it", func(t *testing.T) {
		e.get(t, e.path(e.namespace+".example.com/v1", "widgets", "a")).refused(t, http.StatusInternalServerError, "InternalError", "no matching prefix found")
	})
	t.Run("what is in the clear is not read where no provider is identity", func(t *testing.T) {
		e.get(t, e.path("v1", "podtemplates", "a")).refused(t, http.StatusInternalServerError, "InternalError", "no matching prefix found")
	})
	t.Run("a value is decrypted only under the key that it was encrypted for", func(t *testing.T) {
		e.get(t, e.path("networking.k8s.io/v1", "networkpolicies", "a")).want(t, http.StatusOK)
		e.get(t, e.path("networking.k8s.io/v1", "networkpolicies", "b")).refused(t, http.StatusInternalServerError, "InternalError", "message authentication failed")
	})
	t.Run("all other objects are read as before", func(t *testing.T) {
		for _, path := range []string{e.path("v1", "secrets"), e.path("coordination.k8s.io/v1", "leases"), "/readyz"} {
			e.get(t, path).want(t, http.StatusOK)
		}
	})
}

// encryptionConfig is a file that --encryption-provider-config names.
type encryptionConfig struct{ path string }

func encryptionFile(t *testing.T) encryptionConfig {
	return encryptionConfig{filepath.Join(t.TempDir(), "encryption.yaml")}
}

// write replaces the file as a whole, as a reader that comes at any moment needs it.
func (c encryptionConfig) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(c.path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.path+".new", c.path); err != nil {
		t.Fatal(err)
	}
}

func encryptionOf(rules ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(rules, "")
}

func encrypts(resource string, providers ...string) string {
	return fmt.Sprintf("- {resources: [%q], providers: [{%s}]}\n", resource, strings.Join(providers, "}, {"))
}

const identityProvider = "identity: {}"

func aescbc(key string) string    { return keyed("aescbc", key) }
func aesgcm(key string) string    { return keyed("aesgcm", key) }
func secretbox(key string) string { return keyed("secretbox", key) }

func keyed(provider, key string) string {
	secret := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", provider, key, base64.StdEncoding.EncodeToString(secret[:]))
}

func kmsProvider(version, name, endpoint string) string {
	return fmt.Sprintf("kms: {apiVersion: %s, name: %s, endpoint: %q, timeout: %s}", version, name, endpoint, kmsTimeout)
}

// ownNames are those of the items of a list that come from the test, not from a controller.
func ownNames(t *testing.T, list answer) []string {
	return slices.DeleteFunc(list.names(t), func(name string) bool { return len(name) > 1 })
}
