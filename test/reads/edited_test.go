package reads

import (
	"database/sql"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// testEdited stops the server, changes rows as a manual repair or an older sqube might have left them, restarts the server and
// reads them. (A revision never changes, so a running server may cache what it has read.)
func testEdited(t *testing.T, c *cluster) {
	c.server.Stop(t)
	db := harness.OpenDatabase(t, c.engine)
	const sorted, unsorted = `"data":{"a":`, `"data":{"zz":"","a":`
	edit(t, db, "configmaps", func(value string) string {
		if !strings.Contains(value, sorted) {
			t.Fatalf("the row has %s", value)
		}
		return strings.Replace(value, sorted, unsorted, 1)
	})
	rearranged := []string{"endpoints", "secrets", "serviceaccounts"}
	for _, resource := range rearranged {
		edit(t, db, resource, func(value string) string { return rearrange(t, value) })
	}
	edit(t, db, "horizontalpodautoscalers", func(value string) string { return older(t, value) })
	edit(t, db, "gadgets", func(value string) string { return strings.Replace(value, `"spec":{`, `"spec":{"zz":1,`, 1) })
	edit(t, db, "frees", func(value string) string { return rearrange(t, value) })
	edit(t, db, "movings", func(value string) string { return strings.Replace(value, `"a":"x"`, `"b":"y"`, 1) })
	harness.Must(t, db.Close())
	c.server.Start(t)

	// A row in the expected form is sent unchanged: this proves that there really are two ways to compare.
	path := "/api/v1/namespaces/" + namespace + "/configmaps/rich"
	if got := c.get(t, path); !strings.Contains(string(got.body), unsorted) {
		t.Errorf("the value was not copied: %s", got.body)
	}
	sameMeaning(t, c, path)

	for _, resource := range rearranged {
		collection := "/api/v1/namespaces/" + namespace + "/" + resource
		c.same(t, collection+"/rich")
		c.same(t, collection)
		c.same(t, collection+"?limit=1")
	}

	for _, collection := range []string{gadgets, frees, movings("v1"), movings("v2")} {
		for range 2 {
			c.same(t, collection+"/rich")
			c.same(t, collection)
		}
	}

	for _, version := range []string{"v1", "v2"} {
		collection := "/apis/autoscaling/" + version + "/namespaces/" + namespace + "/horizontalpodautoscalers"
		c.same(t, collection)
		c.same(t, collection+"/rich")
	}
	got, err := c.typed.AutoscalingV2().HorizontalPodAutoscalers(namespace).Get(t.Context(), "rich", metav1.GetOptions{})
	if err != nil || len(got.Spec.Metrics) != 1 || *got.Spec.Metrics[0].Resource.Target.AverageUtilization != 55 || got.Spec.ScaleTargetRef.Name != "older" {
		t.Errorf("in the newer version, it is %+v, %v", got.Spec, err)
	}
}

// edit changes the value of the object "rich" of a resource.
func edit(t *testing.T, db *sql.DB, resource string, change func(string) string) {
	t.Helper()
	var id int64
	var value string
	if err := db.QueryRow("SELECT id, value FROM log WHERE replaced_by IS NULL AND resource = $1 AND name = 'rich'", resource).Scan(&id, &value); err != nil {
		t.Fatalf("%s: %v", resource, err)
	}
	if _, err := db.Exec("UPDATE log SET value = $1 WHERE id = $2", change(value), id); err != nil {
		t.Fatalf("%s: %v", resource, err)
	}
}

// rearrange puts the outer fields in another order, and spaces between them.
func rearrange(t *testing.T, value string) string {
	t.Helper()
	var fields map[string]json.RawMessage
	harness.Must(t, json.Unmarshal([]byte(value), &fields))
	byName, err := json.MarshalIndent(fields, "", " ")
	harness.Must(t, err)
	return string(byName)
}

// older converts an autoscaler to the former storage version.
func older(t *testing.T, value string) string {
	t.Helper()
	var object map[string]any
	harness.Must(t, json.Unmarshal([]byte(value), &object))
	object["apiVersion"] = "autoscaling/v1"
	object["spec"] = map[string]any{
		"scaleTargetRef":                 map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "older"},
		"maxReplicas":                    7,
		"targetCPUUtilizationPercentage": 55,
	}
	object["status"] = map[string]any{"currentReplicas": 0, "desiredReplicas": 0}
	text, err := json.Marshal(object)
	harness.Must(t, err)
	return string(text)
}

// sameMeaning compares the results of both ways, ignoring the order of fields.
func sameMeaning(t *testing.T, c *cluster, path string) {
	t.Helper()
	var got, want any
	for _, read := range []struct {
		path string
		into *any
	}{{path, &got}, {pretty(path), &want}} {
		harness.Must(t, json.Unmarshal(c.get(t, read.path).body, read.into))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("GET %s: got\n%v, want\n%v", path, got, want)
	}
}
