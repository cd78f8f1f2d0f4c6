package concepts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// "Migrate Kubernetes Objects Using Storage Version Migration": a storage version changes, a key is rotated, and what was
// stored before is written anew.
func TestMigration(t *testing.T) {
	engines(t, func(t *testing.T, engine harness.Engine) {
		file := encryptionFile(t)
		file.write(t, encryptionOf(encrypts("secrets", aescbc("old"))))
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: []string{
			"--feature-gates=StorageVersionMigrator=true", "--runtime-config=storagemigration.k8s.io/v1beta1=true",
			"--encryption-provider-config", file.path,
		}})
		m := &migrated{newCluster(t, server.Config(t), server, 0), rows{harness.OpenDatabase(t, engine)}}
		m.widgets(t, anySchema)
		m.changesStorageVersion(t)

		secrets := m.path("v1", "secrets")
		for _, name := range []string{"a", "b"} {
			m.post(t, secrets, manifest("{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {k: v}}", name)).want(t, http.StatusCreated)
		}
		server.Stop(t)
		file.write(t, encryptionOf(encrypts("secrets", secretbox("new"), aescbc("old"))))
		server.Start(t)
		t.Run("a migration encrypts anew what another key encrypted", func(t *testing.T) {
			m.rows.live(t, "secrets", m.namespace, "a").encryptedBy(t, "k8s:enc:aescbc:v1:old:")
			m.migrate(t, "", "secrets", manifest("{apiVersion: v1, kind: Secret, metadata: {name: trigger}}"))
			for _, name := range []string{"a", "b"} {
				m.rows.live(t, "secrets", m.namespace, name).encryptedBy(t, "k8s:enc:secretbox:v1:new:")
			}
		})
		m.migratesDefinition(t)
		m.refusesMigrations(t)
	})
}

// migrated is a server with the API of migrations.
type migrated struct {
	*cluster
	rows rows
}

// group is that of the widgets.
func (m *migrated) group() string { return m.namespace + ".example.com" }

func (m *migrated) definition() string {
	return m.global("apiextensions.k8s.io/v1", "customresourcedefinitions", "widgets."+m.group())
}

// changesStorageVersion makes widgets of version v1, and then of v2.
func (m *migrated) changesStorageVersion(t *testing.T) {
	v1, v2 := m.group()+"/v1", m.group()+"/v2"
	m.post(t, m.path(v1, "widgets"), with(widget(v1, "old"), "red", "spec", "color")).want(t, http.StatusCreated)
	m.patch(t, jsonPatch, m.definition(), `[{"op":"copy","from":"/spec/versions/0","path":"/spec/versions/1"},
		{"op":"replace","path":"/spec/versions/1/name","value":"v2"},{"op":"replace","path":"/spec/versions/0/storage","value":false}]`).want(t, http.StatusOK)
	eventually(t, "the new version is served", func() bool { return m.get(t, m.path(v2, "widgets")).Code == http.StatusOK })

	t.Run("objects stored in a version that is no longer the storage version are read in every version", func(t *testing.T) {
		m.storedAs(t, "old", v1)
		for _, version := range []string{v1, v2} {
			got := m.get(t, m.path(version, "widgets", "old")).want(t, http.StatusOK)
			equal(t, []any{got.text(t, "apiVersion"), got.text(t, "spec", "color")}, []any{version, "red"})
			list := m.get(t, m.path(version, "widgets")).want(t, http.StatusOK)
			equal(t, list.names(t), []string{"old"})
			if state := m.watch(t, m.path(version, "widgets")+"?watch=true").next(t); state.Object["apiVersion"] != version {
				t.Errorf("a watch brings %v", state)
			}
		}
	})
	t.Run("objects are stored in the storage version, whatever version they are written in", func(t *testing.T) {
		eventually(t, "the new version is stored", func() bool { // servers hear of it a moment later
			m.post(t, m.path(v1, "widgets"), widget(v1, "new")).want(t, http.StatusCreated)
			stored := m.rows.live(t, "widgets", m.namespace, "new").value
			m.delete(t, m.path(v1, "widgets", "new")).want(t, http.StatusOK)
			return strings.Contains(stored, v2)
		})
	})
	t.Run("a definition's status names every version that may be stored", func(t *testing.T) {
		equal(t, m.get(t, m.definition()).value(t, "status", "storedVersions"), any([]any{"v1", "v2"}))
	})
}

func (m *migrated) migratesDefinition(t *testing.T) {
	v1, v2 := m.group()+"/v1", m.group()+"/v2"
	before := m.get(t, m.path(v2, "widgets", "old"))
	t.Run("a migration writes custom resources anew in the storage version", func(t *testing.T) {
		m.storedAs(t, "old", v1)
		m.migrate(t, m.group(), "widgets", widget(v2, "trigger"))
		m.storedAs(t, "old", v2)
	})
	t.Run("a migration changes nothing of an object but its resourceVersion", func(t *testing.T) {
		after := m.get(t, m.path(v2, "widgets", "old"))
		if after.version(t) == before.version(t) {
			t.Error("the resourceVersion is the same")
		}
		equal(t, with(after.object(t), before.version(t), "metadata", "resourceVersion"), before.object(t))
	})
	t.Run("a definition's status names the storage version alone after the migration, which it tells by a condition", func(t *testing.T) {
		eventually(t, "the status is written", func() bool {
			return fmt.Sprint(m.get(t, m.definition()).value(t, "status", "storedVersions")) == "[v2]"
		})
		status, reason := condition(t, m.get(t, m.definition()), "StorageMigrating")
		equal(t, []string{status, reason}, []string{"False", "MigrationSucceeded"})
	})
}

func (m *migrated) refusesMigrations(t *testing.T) {
	t.Run("a migration of what can't be listed and updated fails", func(t *testing.T) {
		m.post(t, m.migrations(), migration("reviews", "authentication.k8s.io", "tokenreviews")).want(t, http.StatusCreated)
		eventually(t, "the migration fails", func() bool {
			status, _ := condition(t, m.get(t, m.migrations("reviews")), "Failed")
			return status == "True"
		})
		if told := m.get(t, m.migrations("reviews")).value(t, "status"); !strings.Contains(fmt.Sprint(told), "does not support discovery operations") {
			t.Errorf("the status is %v", told)
		}
	})
	t.Run("a migration names a resource, and never another", func(t *testing.T) {
		m.post(t, m.migrations(), migration("nothing", "", "")).refused(t, http.StatusUnprocessableEntity, "Invalid", "spec.resource.resource")
		m.patch(t, mergePatch, m.migrations("reviews"), `{"spec":{"resource":{"resource":"other"}}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "spec")
	})
	t.Run("a migration is listed and deleted as any object", func(t *testing.T) {
		equal(t, len(m.get(t, m.migrations()).names(t)), 3)
		m.delete(t, m.migrations("reviews")).want(t, http.StatusOK)
		m.get(t, m.migrations("reviews")).want(t, http.StatusNotFound)
	})
}

// storedAs fails the test unless the widget's row is of this version.
func (m *migrated) storedAs(t *testing.T, name, version string) {
	t.Helper()
	if stored := m.rows.live(t, "widgets", m.namespace, name).value; !strings.Contains(stored, fmt.Sprintf(`"apiVersion":%q`, version)) {
		t.Errorf("the row is %s", stored)
	}
}

func (m *migrated) migrations(name ...string) string {
	return m.global("storagemigration.k8s.io/v1beta1", append([]string{"storageversionmigrations"}, name...)...)
}

func migration(name, group, resource string) map[string]any {
	return manifest("{apiVersion: storagemigration.k8s.io/v1beta1, kind: StorageVersionMigration, metadata: {name: %s}, spec: {resource: {group: %q, resource: %q}}}",
		name, group, resource)
}

// migrate runs the migration of a resource to its end. The controller begins when it has heard of a change of the
// resource that came after the migration, or by a bookmark, a minute later, that there was none. The trigger, an object of
// the resource, is that change.
func (m *migrated) migrate(t *testing.T, group, resource string, trigger map[string]any) {
	t.Helper()
	m.post(t, m.migrations(), migration(resource, group, resource)).want(t, http.StatusCreated)
	eventually(t, "the migration has a revision to begin with", func() bool {
		return m.get(t, m.migrations(resource)).text(t, "status", "resourceVersion") != ""
	})
	m.post(t, m.path(trigger["apiVersion"].(string), resource), trigger).want(t, http.StatusCreated)
	eventually(t, "the migration succeeds", func() bool {
		status, _ := condition(t, m.get(t, m.migrations(resource)), "Succeeded")
		return status == "True"
	})
}
