// Package encryption tests sqube against the documentation of encryption at
// rest.
package encryption

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

func TestMain(m *testing.M) { kit.Main(m) }

// "Encrypting Confidential Data at Rest" and "Using a KMS provider for data encryption": the contents of rows, and reads of
// them, with a sequence of configurations.
func TestEncryption(t *testing.T) {
	kit.OnEngines(t, func(t *testing.T, engine harness.Engine) {
		kms := newKMS(t, "key-1")
		kms.start(t)
		kmsV1 := startKMSv1(t)
		file := kit.NewEncryptionFile(t)
		file.Write(t, kit.EncryptionConfig(
			kit.EncryptionRule("secrets", kit.AESGCM("old"), kit.IdentityProvider),
			kit.EncryptionRule("configmaps", kit.AESCBC("old"), kit.IdentityProvider),
			kit.EncryptionRule("podtemplates", kit.IdentityProvider, kit.AESCBC("old")),
			kit.EncryptionRule("*.apps", kit.Secretbox("old")),
			kit.EncryptionRule("*.coordination.k8s.io", kmsProvider("v1", "plugin1", kmsV1)),
			kit.EncryptionRule("*.encryption-0.example.com", kmsProvider("v2", "plugin2", kms.endpoint)),
			kit.EncryptionRule("*.*", kit.AESGCM("rest"))))
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore,
			Args: []string{"--feature-gates=KMSv1=true", "--encryption-provider-config", file.Path}})
		e := &encrypted{kit.NewCluster(t, server.Config(t), server, 0), kit.Rows{DB: harness.OpenDatabase(t, engine)}}
		e.DefineWidgets(t, kit.AnySchema)

		e.isEncrypted(t)
		e.isRead(t)
		e.isHealthy(t)

		server.Stop(t)
		kms.keyID.Store("key-2")
		file.Write(t, kit.EncryptionConfig(
			kit.EncryptionRule("secrets", kit.Secretbox("new"), kit.AESGCM("old")),
			kit.EncryptionRule("podtemplates", kit.IdentityProvider),
			kit.EncryptionRule("configmaps", kit.IdentityProvider, kit.AESCBC("old")),
			kit.EncryptionRule("*.apps", kit.AESGCM("new"), kit.Secretbox("old")),
			kit.EncryptionRule("*.coordination.k8s.io", kit.AESCBC("new"), kmsProvider("v1", "plugin1", kmsV1)),
			kit.EncryptionRule("*.encryption-0.example.com", kmsProvider("v2", "plugin2", kms.endpoint)),
			kit.EncryptionRule("*.*", kit.AESGCM("rest"))))
		server.Start(t)
		e.isRotated(t)

		server.Stop(t)
		e.moveRow(t)
		file.Write(t, kit.EncryptionConfig(
			kit.EncryptionRule("secrets", kit.Secretbox("new")),
			kit.EncryptionRule("podtemplates", kit.AESGCM("other")),
			kit.EncryptionRule("configmaps", kit.IdentityProvider, kit.AESCBC("old")),
			kit.EncryptionRule("*.apps", kit.AESGCM("other")),
			kit.EncryptionRule("*.coordination.k8s.io", kit.AESCBC("new"), kmsProvider("v1", "plugin1", kmsV1)),
			kit.EncryptionRule("*.encryption-0.example.com", kit.IdentityProvider),
			kit.EncryptionRule("*.*", kit.AESGCM("rest"))))
		server.Start(t)
		e.isRefused(t)
	})
}

// encrypted is a server whose encryption configuration changes.
type encrypted struct {
	*kit.Cluster
	rows kit.Rows
}

// never is a string in encrypted objects, so no row may contain it.
const never = "never-in-the-clear"

// encryptedKinds returns objects named "a" that contain never, and how they are encrypted by the three configurations; "" means
// not encrypted.
func (e *encrypted) encryptedKinds() []encryptedKind {
	group := e.Namespace + ".example.com"
	kind := func(statement, groupVersion, resource, first, second, object string) encryptedKind {
		return encryptedKind{statement, e.Path(groupVersion, resource), resource, kit.Manifest("%s", object), first, second}
	}
	const metadata = "metadata: {name: a, labels: {l: " + never + "}, annotations: {a: " + never + "}}"
	return []encryptedKind{
		kind("the provider aesgcm encrypts", "v1", "secrets", "k8s:enc:aesgcm:v1:old:", "k8s:enc:secretbox:v1:new:",
			"{apiVersion: v1, kind: Secret, type: "+never+"/type, stringData: {k: "+never+"}, "+metadata+"}"),
		kind("the provider aescbc encrypts", "v1", "configmaps", "k8s:enc:aescbc:v1:old:", "",
			"{apiVersion: v1, kind: ConfigMap, data: {k: "+never+"}, "+metadata+"}"),
		kind("the provider secretbox encrypts, here all of a group", "apps/v1", "controllerrevisions", "k8s:enc:secretbox:v1:old:", "k8s:enc:aesgcm:v1:new:",
			"{apiVersion: apps/v1, kind: ControllerRevision, revision: 1, data: {k: "+never+"}, "+metadata+"}"),
		kind("a KMS plugin of version 1 encrypts, with the gate KMSv1", "coordination.k8s.io/v1", "leases", "k8s:enc:kms:v1:plugin1:", "k8s:enc:aescbc:v1:new:",
			"{apiVersion: coordination.k8s.io/v1, kind: Lease, "+metadata+"}"),
		kind("a KMS plugin of version 2 encrypts, here custom resources", group+"/v1", "widgets", "k8s:enc:kms:v2:plugin2:", "k8s:enc:kms:v2:plugin2:",
			"{apiVersion: "+group+"/v1, kind: Widget, spec: {k: "+never+"}, "+metadata+"}"),
		kind("the wildcard *.* is for all resources without another rule", "networking.k8s.io/v1", "networkpolicies", "k8s:enc:aesgcm:v1:rest:", "k8s:enc:aesgcm:v1:rest:",
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
			e.Post(t, kind.collection, kind.object).Created(t)
			stored := e.rows.Live(t, kind.resource, e.Namespace, "a")
			stored.EncryptedBy(t, kind.first)
			if text := stored.Everything(); strings.Contains(text, never) {
				t.Errorf("the row contains plain text: %s", text)
			}
		})
	}
	t.Run("a resource whose first provider is identity is not encrypted", func(t *testing.T) {
		e.Post(t, e.Path("v1", "podtemplates"), kit.With(kit.PodTemplate("a"), map[string]any{"a": "clear"}, "metadata", "annotations")).Created(t)
		if stored := e.rows.Live(t, "podtemplates", e.Namespace, "a"); !strings.Contains(stored.Value, `"a":"clear"`) {
			t.Errorf("the row is %s", stored.Everything())
		}
	})
	policy := kit.With(e.encryptedKinds()[5].object, "b", "metadata", "name")
	e.Post(t, e.Path("networking.k8s.io/v1", "networkpolicies"), policy).Created(t)
	t.Run("previous versions of an object are encrypted too", func(t *testing.T) {
		path := e.Path("v1", "secrets", "a")
		e.Patch(t, kit.MergePatch, path, `{"metadata":{"annotations":{"b":"`+never+`"}}}`).OK(t)
		versions := e.rows.History(t, "secrets", e.Namespace, "a")
		if len(versions) != 2 {
			t.Errorf("there are %d versions", len(versions))
		}
		for _, value := range versions {
			(kit.Row{Value: value}).EncryptedBy(t, "k8s:enc:aesgcm:v1:old:")
		}
	})
}

func (e *encrypted) isRotated(t *testing.T) {
	kinds := e.encryptedKinds()
	for _, kind := range kinds {
		before := e.rows.Live(t, kind.resource, e.Namespace, "a")
		got := e.Get(t, kind.collection+"/a")
		t.Run(kind.resource+" encrypted with the previous configuration stay readable", func(t *testing.T) {
			if got.OK(t); !bytes.Contains(got.Body, []byte(never)) {
				t.Errorf("the response is %s", got.Body)
			}
			before.EncryptedBy(t, kind.first)
		})
		changes := kind.resource != "networkpolicies"
		statement := kind.resource + " are re-encrypted by an update that changes nothing"
		if !changes {
			statement = kind.resource + ", whose key is still the first, are not rewritten by an update that changes nothing"
		}
		t.Run(statement, func(t *testing.T) {
			if kind.resource == "secrets" { // as documented
				objects, _ := e.Kubectl(t, "", "get", "secrets", "-A", "-o", "json")
				if output, ok := e.Kubectl(t, objects, "replace", "-f", "-"); !ok {
					t.Fatal(output)
				}
			} else {
				e.Put(t, kind.collection+"/a", got.Body).OK(t)
			}
			if after := e.Get(t, kind.collection+"/a").ResourceVersion(t); (after != got.ResourceVersion(t)) != changes {
				t.Errorf("the resourceVersion was %s and is now %s", got.ResourceVersion(t), after)
			}
			e.rows.Live(t, kind.resource, e.Namespace, "a").EncryptedBy(t, kind.second)
		})
	}
	t.Run("a resource whose first provider becomes identity is decrypted by an update", func(t *testing.T) {
		stored := e.rows.Live(t, "configmaps", e.Namespace, "a")
		if want := `"l":"` + never + `"`; !strings.Contains(stored.Value, want) || !strings.Contains(stored.Labels, want) {
			t.Errorf("the row is %s", stored.Everything())
		}
	})
	t.Run("a KMS plugin's new key is used for subsequent writes", func(t *testing.T) {
		stored := e.rows.Live(t, "widgets", e.Namespace, "a")
		if ciphertext := stored.Ciphertext(t); !bytes.Contains(ciphertext, []byte("key-2")) {
			t.Errorf("the key id is not in %q", ciphertext)
		}
	})
}

// moveRow copies the value of the network policy "a" to "b".
func (e *encrypted) moveRow(t *testing.T) {
	a := e.rows.Live(t, "networkpolicies", e.Namespace, "a")
	e.rows.Edit(t, "networkpolicies", e.Namespace, "b", a.Value)
}

func (e *encrypted) isRefused(t *testing.T) {
	revisions := e.Path("apps/v1", "controllerrevisions")
	key := "/apps/controllerrevisions/" + e.Namespace + "/a"
	t.Run("reading an object whose key is missing returns 500 with its name", func(t *testing.T) {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/yaml", kit.TableJSON} {
			got := e.Send(t, http.MethodGet, revisions+"/a", kit.Header{"Accept", accept}, nil).Want(t, http.StatusInternalServerError)
			if !bytes.Contains(got.Body, []byte(key)) || bytes.Contains(got.Body, []byte(never)) {
				t.Errorf("%s: the response is %s", accept, got.Body)
			}
		}
		e.Get(t, revisions+"/a").Refused(t, http.StatusInternalServerError, "InternalError", key, "no matching key was found")
	})
	t.Run("a list with such an object returns 500", func(t *testing.T) {
		e.Get(t, revisions).Refused(t, http.StatusInternalServerError, "StorageReadError", key)
		e.Get(t, revisions+"?limit=1").Refused(t, http.StatusInternalServerError, "StorageReadError", key)
	})
	t.Run("a watch that begins with such an object receives an event of type ERROR", func(t *testing.T) {
		event := e.Watch(t, revisions+"?watch=true").Next(t)
		if message := fmt.Sprint(event.Object["message"]); event.Type != "ERROR" || !strings.Contains(message, key) {
			t.Errorf("the event is %v", event)
		}
	})
	t.Run("such an object can be neither changed nor deleted, but others can be created", func(t *testing.T) {
		e.Patch(t, kit.MergePatch, revisions+"/a", `{"metadata":{"labels":{"a":"b"}}}`).Refused(t, http.StatusInternalServerError, "InternalError", key)
		e.Delete(t, revisions+"/a").Refused(t, http.StatusInternalServerError, "InternalError", key)
		e.Post(t, revisions, kit.Manifest("{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: b}, revision: 1, data: {k: v}}")).Created(t)
		e.rows.Live(t, "controllerrevisions", e.Namespace, "b").EncryptedBy(t, "k8s:enc:aesgcm:v1:other:")
	})
	t.Run("ciphertext is not read as an object if there is no provider for it", func(t *testing.T) {
		e.Get(t, e.Path(e.Namespace+".example.com/v1", "widgets", "a")).Refused(t, http.StatusInternalServerError, "InternalError", "no matching prefix found")
	})
	t.Run("plain text is not read without the provider identity", func(t *testing.T) {
		e.Get(t, e.Path("v1", "podtemplates", "a")).Refused(t, http.StatusInternalServerError, "InternalError", "no matching prefix found")
	})
	t.Run("a value is decrypted only under the key that it was encrypted for", func(t *testing.T) {
		e.Get(t, e.Path("networking.k8s.io/v1", "networkpolicies", "a")).OK(t)
		e.Get(t, e.Path("networking.k8s.io/v1", "networkpolicies", "b")).Refused(t, http.StatusInternalServerError, "InternalError", "message authentication failed")
	})
	t.Run("all other objects are read as before", func(t *testing.T) {
		for _, path := range []string{e.Path("v1", "secrets"), e.Path("coordination.k8s.io/v1", "leases"), "/readyz"} {
			e.Get(t, path).OK(t)
		}
	})
}

func kmsProvider(version, name, endpoint string) string {
	return fmt.Sprintf("kms: {apiVersion: %s, name: %s, endpoint: %q, timeout: %s}", version, name, endpoint, kmsTimeout)
}

// ownNames returns the names of a list's items created by the test, not by a controller.
func ownNames(t *testing.T, list kit.Answer) []string {
	return slices.DeleteFunc(list.Names(t), func(name string) bool { return len(name) > 1 })
}
