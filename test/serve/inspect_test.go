package serve

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
)

// TestInspect reads the database with SQL while sqube serves from it, with the queries from migrations/README.md.
func TestInspect(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore})
		c := client(t, s.Kubeconfig)
		changeConfigMap(t, c)
		db := openToRead(t, engine)

		answers(t, db, engine.Name)
		if engine.Name == "sqlite" { // a copy is just the file
			copied := filepath.Join(t.TempDir(), "copy.db")
			if _, err := db.Exec("VACUUM INTO ?", copied); err != nil {
				t.Fatal(err)
			}
			answers(t, openToRead(t, harness.Engine{Name: engine.Name, Datastore: "sqlite://" + copied}), engine.Name)
		}

		var revision, name, user, manager, value string
		row := db.QueryRow("SELECT resource_version, name, user_name, field_manager, value FROM objects WHERE resource = 'configmaps' AND name = 'seen'")
		harness.Must(t, row.Scan(&revision, &name, &user, &manager, &value))
		var stored corev1.ConfigMap
		harness.Must(t, json.Unmarshal([]byte(value), &stored))
		served, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "seen", metav1.GetOptions{})
		harness.Must(t, err)
		if revision != served.ResourceVersion || user != "kubernetes-admin" || manager != "inspector" || stored.Data["a"] != "2" || stored.UID != served.UID {
			t.Errorf("objects has %s by %s with %s, but the server returns %+v", revision, user, manager, served)
		}

		var did []string
		history, err := db.Query("SELECT operation FROM history WHERE resource = 'configmaps' AND name = 'gone' ORDER BY resource_version")
		harness.Must(t, err)
		defer history.Close()
		for history.Next() {
			var operation string
			harness.Must(t, history.Scan(&operation))
			did = append(did, operation)
		}
		if err := history.Err(); err != nil || strings.Join(did, " ") != "create delete" {
			t.Errorf("history has %v, %v", did, err)
		}

		writeInCBOR(t, c)
		var size int
		row = db.QueryRow(map[string]string{
			"sqlite":   "SELECT json_extract(value, '$.spec.size') FROM objects WHERE resource = 'crates'",
			"postgres": "SELECT CAST(value->'spec'->>'size' AS integer) FROM objects WHERE resource = 'crates'",
		}[engine.Name])
		if err := row.Scan(&size); err != nil || size != 3 {
			t.Errorf("the object written in CBOR is stored with size %d, %v", size, err)
		}
	})
}

// answers runs the queries of migrations/README.md, each of which must return rows.
func answers(t *testing.T, db *sql.DB, engine string) {
	t.Helper()
	for _, query := range documented(t, engine) {
		if n := rows(t, db, query); n == 0 {
			t.Errorf("this query of migrations/README.md returns nothing:\n%s", query)
		}
	}
}

// writeInCBOR defines a custom resource and creates one with spec.size 3, in CBOR. (kube-apiserver stores custom resources as
// CBOR.)
func writeInCBOR(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	rest := c.CoreV1().RESTClient()
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"crates.example.com"},"spec":{"group":"example.com",
		"scope":"Cluster","names":{"plural":"crates","singular":"crate","kind":"Crate"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	harness.Must(t, rest.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body([]byte(definition)).Do(t.Context()).Error())
	crate, err := direct.Marshal(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Crate", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"size": 3},
	})
	harness.Must(t, err)
	harness.Retry(t, "the crate is created", func() error {
		return rest.Post().AbsPath("/apis/example.com/v1/crates").SetHeader("Content-Type", "application/cbor").Body(crate).Do(t.Context()).Error()
	})
}

// changeConfigMap creates some history.
func changeConfigMap(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	maps := c.CoreV1().ConfigMaps("default")
	for _, name := range []string{"seen", "gone"} {
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "1"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := maps.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}, Data: map[string]string{"a": "2"}}, metav1.UpdateOptions{FieldManager: "inspector"}); err != nil {
		t.Fatal(err)
	}
	harness.Must(t, maps.Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "seen"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i",
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "seen"}}}}}}}}
	harness.Retry(t, "the namespace has its service account", func() error {
		_, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
}

// openToRead opens the database read-only, like a reporting tool.
func openToRead(t *testing.T, engine harness.Engine) *sql.DB {
	t.Helper()
	if path, ok := strings.CutPrefix(engine.Datastore, "sqlite://"); ok {
		return harness.OpenDatabase(t, harness.Engine{Name: engine.Name, Datastore: "sqlite://" + path + "?mode=ro"})
	}
	return harness.OpenDatabase(t, engine)
}

// documented returns the queries of migrations/README.md for an engine: those after a comment with its name, and those without such a comment.
func documented(t *testing.T, engine string) (queries []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "migrations", "README.md"))
	harness.Must(t, err)
	other := map[string]string{"sqlite": "(Postgres)", "postgres": "(SQLite)"}[engine]
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, query := range strings.SplitAfter(block[1], ";\n") {
			if strings.TrimSpace(query) != "" && !strings.Contains(query, other) {
				queries = append(queries, query)
			}
		}
	}
	if len(queries) < 4 {
		t.Fatalf("migrations/README.md has %d queries for %s", len(queries), engine)
	}
	return queries
}

// rows runs the query and counts its rows.
func rows(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	result, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s%v", query, err)
	}
	defer result.Close()
	for result.Next() {
		n++
	}
	if err := result.Err(); err != nil {
		t.Fatalf("%s%v", query, err)
	}
	return n
}
