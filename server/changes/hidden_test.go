package changes

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/test/harness"
)

// TestHidden hides what is secret by its path, also within what is above it, and nothing else.
func TestHidden(t *testing.T) {
	var document map[string]any
	harness.Must(t, json.Unmarshal([]byte(`{"properties": {"spec": {"properties": {
		"user": {"type": "string"}, "password": {"type": "string", "format": "password"},
		"users": {"items": {"properties": {"token": {"format": "password"}, "name": {}}}},
		"keys": {"additionalProperties": {"anyOf": [{"format": "password"}]}}}}}}`), &document))
	custom, secrets := HiddenInSchemas(document), HiddenInBuiltIn(schema.GroupResource{Resource: "secrets"})
	const applied = `["kubectl.kubernetes.io/last-applied-configuration"]`
	for _, test := range []struct {
		hidden      *Hidden
		path, value string
		want        bool
		size        int
	}{
		{secrets, ".data.code", `"MTIzNA=="`, true, 4},
		{secrets, `.data["a.b"]`, `"MTIzNA=="`, true, 4},
		{secrets, ".data", `{"code": "MTIzNA=="}`, true, 19},
		{secrets, ".type", `"Opaque"`, false, 6},
		{secrets, ".metadata.annotations" + applied, `"{}"`, true, 2},
		{secrets, ".metadata.annotations", `{"kubectl.kubernetes.io/last-applied-configuration": "{}"}`, true, 57},
		{secrets, ".metadata.annotations", `{"color": "red"}`, false, 15},
		{HiddenInBuiltIn(schema.GroupResource{Resource: "configmaps"}), ".data.code", `"1"`, false, 1},
		{custom, ".spec.password", `"1234"`, true, 4},
		{custom, ".spec.user", `"jane"`, false, 4},
		{custom, ".spec", `{"user": "jane"}`, false, 15},
		{custom, ".spec", `{"password": ""}`, true, 15},
		{custom, ".spec.users[name=jane].token", `"x"`, true, 1},
		{custom, ".spec.users[0].name", `"x"`, false, 1},
		{custom, ".spec.users", `[{"name": "x"}]`, false, 14},
		{custom, ".spec.users", `[{"token": "x"}]`, true, 15},
		{custom, `.spec.keys["a/b"]`, `"x"`, true, 1},
		{custom, ".metadata.annotations" + applied, `"{}"`, true, 2},
		{HiddenInSchemas(map[string]any{"properties": map[string]any{}}), ".metadata.annotations" + applied, `"{}"`, false, 2},
		{HiddenWhole, ".spec.anything", `1`, true, 1},
	} {
		var value any
		harness.Must(t, json.Unmarshal([]byte(test.value), &value))
		of := test.hidden.Of(test.path)
		if got, size := of.Hides(value), of.Size(value); got != test.want || size != test.size {
			t.Errorf("%s: %s is hidden: %v, with %d bytes", test.path, test.value, got, size)
		}
	}
}
