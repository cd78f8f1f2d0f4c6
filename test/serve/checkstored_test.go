package serve

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
)

// TestCheckOldVersions checks a database with objects in versions that are no longer their storage versions, and then runs what the check
// says.
func TestCheckOldVersions(t *testing.T) {
	t.Parallel()
	const policies, boats = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", "/apis/example.com/v1/namespaces/default/boats"
	policy := func(name string) string {
		return `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: ` + name + `}, spec: {failurePolicy: Ignore,
			reinvocationPolicy: Never, matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]},
			mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}]}}`
	}
	boat := func(name string) string {
		return `{apiVersion: example.com/v1, kind: Boat, metadata: {name: ` + name + `}}`
	}
	version := func(name, storage string) string {
		return `{name: ` + name + `, served: true, storage: ` + storage + `, schema: {openAPIV3Schema: {type: object}}}`
	}
	definition := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: boats.example.com}, spec: {group: example.com,
		scope: Namespaced, names: {plural: boats, kind: Boat}, versions: [` + version("v1", "true") + "," + version("v2", "false") + `]}}`

	s := serve(t, []string{"--emulated-version=1.36", "--min-compatibility-version=1.35"})
	create := func(path, object string) error {
		body, err := yaml.YAMLToJSON([]byte(object))
		if err != nil {
			return err
		}
		return client(t, s.Kubeconfig).Discovery().RESTClient().Post().AbsPath(path).Body(body).Do(t.Context()).Error()
	}
	harness.Must(t, create(policies, policy("one")))
	harness.Must(t, create(policies, policy("two")))
	harness.Must(t, create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition))
	harness.Retry(t, "boats are served", func() error { return create(boats, boat("one")) })
	moved, err := kubectl(t, s.Kubeconfig, "", "patch", "crd", "boats.example.com", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	if err != nil {
		t.Fatal(moved)
	}
	s.Stop(t)

	check := []string{"check", "--data-dir", s.DataDir}
	report := regexp.MustCompile(`(?s)^OBJECTS +RESOURCE +STORED AS +NOW
1 +boats.example.com +v1 +v2
2 +mutatingadmissionpolicies.admissionregistration.k8s.io +v1beta1 +v1
.*kubectl create -f - <<'END'
(.*)END
.*: \d+ rows of \d+ objects, nothing wrong
$`)
	stopped := succeeds(t, check)
	s = serveAgain(t, s, nil)
	found := report.FindStringSubmatch(succeeds(t, check))
	if !report.MatchString(stopped) || found == nil {
		t.Fatalf("while no server runs the check prints\n%s", stopped)
	}
	if created, err := kubectl(t, s.Kubeconfig, found[1], "create", "-f", "-"); err != nil {
		t.Fatalf("what the check says fails: %s", created)
	}
	migrations := func(reached func(storagemigrationv1.StorageVersionMigrationStatus) bool) func() error {
		return func() error {
			all, err := client(t, s.Kubeconfig).StoragemigrationV1().StorageVersionMigrations().List(t.Context(), metav1.ListOptions{})
			harness.Must(t, err)
			for _, m := range all.Items {
				if !reached(m.Status) {
					return fmt.Errorf("%s: %v", m.Name, m.Status)
				}
			}
			return nil
		}
	}
	harness.Retry(t, "the migrations have a revision", migrations(func(status storagemigrationv1.StorageVersionMigrationStatus) bool {
		return status.ResourceVersion != ""
	}))
	// A migration starts after a change of its resource, or after a bookmark a minute later.
	harness.Must(t, create(policies, policy("three")))
	harness.Must(t, create(boats, boat("two")))
	harness.Retry(t, "the migrations succeed", migrations(func(status storagemigrationv1.StorageVersionMigrationStatus) bool {
		return meta.IsStatusConditionTrue(status.Conditions, string(storagemigrationv1.MigrationSucceeded))
	}))
	if text := succeeds(t, check); strings.Contains(text, "STORED AS") {
		t.Errorf("after the migrations the check prints\n%s", text)
	}
}
