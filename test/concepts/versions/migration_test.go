package versions

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// "Migrate Kubernetes Objects Using Storage Version Migration": after a change of the storage version or a key rotation, stored
// objects are rewritten.
func TestMigration(t *testing.T) {
	kit.OnEngines(t, func(t *testing.T, engine harness.Engine) {
		file := kit.NewEncryptionFile(t)
		file.Write(t, kit.EncryptionConfig(kit.EncryptionRule("secrets", kit.AESCBC("old"))))
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: []string{"--encryption-provider-config", file.Path}})
		m := &migrated{kit.NewCluster(t, server.Config(t), server, 0), kit.Rows{DB: harness.OpenDatabase(t, engine)}}
		m.DefineWidgets(t, kit.AnySchema)
		m.changesStorageVersion(t)

		secrets := m.Path("v1", "secrets")
		for _, name := range []string{"a", "b"} {
			m.Post(t, secrets, kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {k: v}}", name)).Created(t)
		}
		server.Stop(t)
		file.Write(t, kit.EncryptionConfig(kit.EncryptionRule("secrets", kit.Secretbox("new"), kit.AESCBC("old"))))
		server.Start(t)
		t.Run("a migration re-encrypts what was encrypted with another key", func(t *testing.T) {
			m.rows.Live(t, "secrets", m.Namespace, "a").EncryptedBy(t, "k8s:enc:aescbc:v1:old:")
			m.migrate(t, "", "secrets", secrets, kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: trigger}}"))
			for _, name := range []string{"a", "b"} {
				m.rows.Live(t, "secrets", m.Namespace, name).EncryptedBy(t, "k8s:enc:secretbox:v1:new:")
			}
		})
		m.migratesDefinition(t)
		m.refusesMigrations(t)
	})
}

// A newer Kubernetes may store a built-in kind in a newer version. Policies are stored as Kubernetes 1.35, which did not know their
// v1, could read them, and then as by default.
func TestMigrationOfBuiltInKinds(t *testing.T) {
	kit.OnEngines(t, func(t *testing.T, engine harness.Engine) {
		options := sqube.Options{Datastore: engine.Datastore, DataDir: t.TempDir(), Args: []string{"--emulated-version=1.36", "--min-compatibility-version=1.35"}}
		server := sqube.Start(t, options)
		m := &migrated{kit.NewCluster(t, server.Config(t), server, 0), kit.Rows{DB: harness.OpenDatabase(t, engine)}}
		m.Post(t, m.policies(), policy("old")).Created(t)
		server.Stop(t)
		options.Args = nil
		server = sqube.Start(t, options)
		m.Cluster = kit.NewCluster(t, server.Config(t), server, 1)
		m.migratesPolicies(t)
	})
}

const policyVersion = "admissionregistration.k8s.io/v1"

func (m *migrated) policies(name ...string) string {
	return m.ClusterPath(policyVersion, append([]string{"mutatingadmissionpolicies"}, name...)...)
}

// policy returns a policy that does nothing, since no binding names it.
func policy(name string) map[string]any {
	return kit.Manifest(`{apiVersion: %s, kind: MutatingAdmissionPolicy, metadata: {name: %s}, spec: {failurePolicy: Ignore, reinvocationPolicy: Never,
		matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]},
		mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}]}}`, policyVersion, name)
}

func (m *migrated) migratesPolicies(t *testing.T) {
	stored := func(name string) string { return m.rows.Live(t, "mutatingadmissionpolicies", "", name).Value }
	m.Post(t, m.policies(), policy("new")).Created(t)
	before, current := m.Get(t, m.policies("old")).OK(t), m.Get(t, m.policies("new")).OK(t)
	if old, new := stored("old"), stored("new"); !strings.Contains(old, policyVersion+"beta1") || strings.Contains(new, policyVersion+"beta1") {
		t.Fatalf("the rows are %s and %s", old, new)
	}
	watch := m.Watch(t, m.policies()+"?watch=true&resourceVersion="+current.ResourceVersion(t))
	defer watch.Stop()
	m.migrate(t, "admissionregistration.k8s.io", "mutatingadmissionpolicies", m.policies(), policy("trigger"))
	m.Post(t, m.policies(), policy("last")).Created(t)

	t.Run("a migration rewrites objects of built-in kinds in the storage version", func(t *testing.T) {
		if now := stored("old"); strings.Contains(now, policyVersion+"beta1") {
			t.Errorf("the row is %s", now)
		}
		after := m.Get(t, m.policies("old")).OK(t)
		kit.Equal(t, kit.With(after.Object(t), before.ResourceVersion(t), "metadata", "resourceVersion"), before.Object(t))
	})
	t.Run("a migration does not write objects that are already in the storage version", func(t *testing.T) {
		kit.Equal(t, m.Get(t, m.policies("new")).Object(t), current.Object(t))
		kit.Equal(t, len(m.rows.History(t, "mutatingadmissionpolicies", "", "new")), 1)
	})
	t.Run("a watch receives a change of each object that a migration rewrites, and of no other", func(t *testing.T) {
		var seen []string
		for range 3 {
			event := watch.Next(t)
			seen = append(seen, event.Type+" "+event.Name())
		}
		slices.Sort(seen[:2]) // the migrator may or may not need the trigger
		kit.Equal(t, seen, []string{"ADDED trigger", "MODIFIED old", "ADDED last"})
	})
	t.Run("metrics show the work of the migration's controllers", func(t *testing.T) {
		metrics := string(m.Get(t, "/metrics").OK(t).Body)
		for _, queue := range []string{"storage-version-migrator-controller", "resource-version-controller"} {
			for _, metric := range []string{"workqueue_adds_total", "workqueue_work_duration_seconds_count"} {
				if !regexp.MustCompile(fmt.Sprintf(`(?m)^%s\{name="%s"\} [1-9]`, metric, queue)).MatchString(metrics) {
					t.Errorf("%s of %s is 0 or missing", metric, queue)
				}
			}
		}
	})
}

// migrated is a server with the API for migrations.
type migrated struct {
	*kit.Cluster
	rows kit.Rows
}

// group returns the group of the widgets.
func (m *migrated) group() string { return m.Namespace + ".example.com" }

func (m *migrated) definition() string {
	return m.ClusterPath("apiextensions.k8s.io/v1", "customresourcedefinitions", "widgets."+m.group())
}

// changesStorageVersion stores widgets in version v1, and then in v2.
func (m *migrated) changesStorageVersion(t *testing.T) {
	v1, v2 := m.group()+"/v1", m.group()+"/v2"
	m.Post(t, m.Path(v1, "widgets"), kit.With(kit.Widget(v1, "old"), "red", "spec", "color")).Created(t)
	m.Patch(t, kit.JSONPatch, m.definition(), `[{"op":"copy","from":"/spec/versions/0","path":"/spec/versions/1"},
		{"op":"replace","path":"/spec/versions/1/name","value":"v2"},{"op":"replace","path":"/spec/versions/0/storage","value":false}]`).OK(t)
	harness.Eventually(t, "the new version is served", func() bool { return m.Get(t, m.Path(v2, "widgets")).Code == http.StatusOK })

	t.Run("objects stored in a version that is no longer the storage version can be read in every version", func(t *testing.T) {
		m.storedAs(t, "old", v1)
		for _, version := range []string{v1, v2} {
			got := m.Get(t, m.Path(version, "widgets", "old")).OK(t)
			kit.Equal(t, []any{got.Text(t, "apiVersion"), got.Text(t, "spec", "color")}, []any{version, "red"})
			list := m.Get(t, m.Path(version, "widgets")).OK(t)
			kit.Equal(t, list.Names(t), []string{"old"})
			if state := m.Watch(t, m.Path(version, "widgets")+"?watch=true").Next(t); state.Object["apiVersion"] != version {
				t.Errorf("a watch returns %v", state)
			}
		}
	})
	t.Run("objects are stored in the storage version, whatever version they are written in", func(t *testing.T) {
		harness.Eventually(t, "the new version is stored", func() bool { // servers notice it a moment later
			m.Post(t, m.Path(v1, "widgets"), kit.Widget(v1, "new")).Created(t)
			stored := m.rows.Live(t, "widgets", m.Namespace, "new").Value
			m.Delete(t, m.Path(v1, "widgets", "new")).OK(t)
			return strings.Contains(stored, v2)
		})
	})
	t.Run("a definition's status lists every version that may be stored", func(t *testing.T) {
		kit.Equal(t, m.Get(t, m.definition()).Value(t, "status", "storedVersions"), any([]any{"v1", "v2"}))
	})
}

func (m *migrated) migratesDefinition(t *testing.T) {
	v1, v2 := m.group()+"/v1", m.group()+"/v2"
	before := m.Get(t, m.Path(v2, "widgets", "old"))
	t.Run("a migration rewrites custom resources in the storage version", func(t *testing.T) {
		m.storedAs(t, "old", v1)
		m.migrate(t, m.group(), "widgets", m.Path(v2, "widgets"), kit.Widget(v2, "trigger"))
		m.storedAs(t, "old", v2)
	})
	t.Run("a migration changes nothing in an object but its resourceVersion", func(t *testing.T) {
		after := m.Get(t, m.Path(v2, "widgets", "old"))
		if after.ResourceVersion(t) == before.ResourceVersion(t) {
			t.Error("the resourceVersion is the same")
		}
		kit.Equal(t, kit.With(after.Object(t), before.ResourceVersion(t), "metadata", "resourceVersion"), before.Object(t))
	})
	t.Run("after the migration, a definition's status only lists the storage version, and has a condition", func(t *testing.T) {
		harness.Eventually(t, "the status is written", func() bool {
			return fmt.Sprint(m.Get(t, m.definition()).Value(t, "status", "storedVersions")) == "[v2]"
		})
		status, reason := kit.Condition(t, m.Get(t, m.definition()), "StorageMigrating")
		kit.Equal(t, []string{status, reason}, []string{"False", "MigrationSucceeded"})
	})
}

func (m *migrated) refusesMigrations(t *testing.T) {
	t.Run("by default, migrations are served in v1 alone", func(t *testing.T) {
		m.Get(t, m.ClusterPath("storagemigration.k8s.io/v1beta1", "storageversionmigrations")).NotFound(t)
	})
	t.Run("a migration of a resource that can't be listed and updated fails", func(t *testing.T) {
		m.Post(t, m.migrations(), migration("reviews", "authentication.k8s.io", "tokenreviews")).Created(t)
		harness.Eventually(t, "the migration fails", func() bool {
			status, _ := kit.Condition(t, m.Get(t, m.migrations("reviews")), "Failed")
			return status == "True"
		})
		if told := m.Get(t, m.migrations("reviews")).Value(t, "status"); !strings.Contains(fmt.Sprint(told), "does not support discovery operations") {
			t.Errorf("the status is %v", told)
		}
	})
	t.Run("the resource of a migration is immutable", func(t *testing.T) {
		m.Post(t, m.migrations(), migration("nothing", "", "")).Invalid(t, "spec.resource.resource")
		m.Patch(t, kit.MergePatch, m.migrations("reviews"), `{"spec":{"resource":{"resource":"other"}}}`).Invalid(t, "spec")
	})
	t.Run("a migration can be listed and deleted like any object", func(t *testing.T) {
		kit.Equal(t, len(m.Get(t, m.migrations()).Names(t)), 3)
		m.Delete(t, m.migrations("reviews")).OK(t)
		m.Get(t, m.migrations("reviews")).Want(t, http.StatusNotFound)
	})
}

// storedAs fails the test unless the widget's row is in this version.
func (m *migrated) storedAs(t *testing.T, name, version string) {
	t.Helper()
	if stored := m.rows.Live(t, "widgets", m.Namespace, name).Value; !strings.Contains(stored, fmt.Sprintf(`"apiVersion":%q`, version)) {
		t.Errorf("the row is %s", stored)
	}
}

func (m *migrated) migrations(name ...string) string {
	return m.ClusterPath("storagemigration.k8s.io/v1", append([]string{"storageversionmigrations"}, name...)...)
}

func migration(name, group, resource string) map[string]any {
	return kit.Manifest("{apiVersion: storagemigration.k8s.io/v1, kind: StorageVersionMigration, metadata: {name: %s}, spec: {resource: {group: %q, resource: %q}}}",
		name, group, resource)
}

// migrate runs the migration of a resource to its end. The controller starts after a change of the resource that follows the
// migration, or after a bookmark a minute later. Creating the trigger in the resource's collection is that change.
func (m *migrated) migrate(t *testing.T, group, resource, collection string, trigger map[string]any) {
	t.Helper()
	m.Post(t, m.migrations(), migration(resource, group, resource)).Created(t)
	harness.Eventually(t, "the migration has a revision", func() bool {
		return m.Get(t, m.migrations(resource)).Text(t, "status", "resourceVersion") != ""
	})
	m.Post(t, collection, trigger).Created(t)
	harness.Eventually(t, "the migration succeeds", func() bool {
		status, _ := kit.Condition(t, m.Get(t, m.migrations(resource)), "Succeeded")
		return status == "True"
	})
}
