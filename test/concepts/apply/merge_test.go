package apply

import (
	"net/http"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// mergeSchema has a field for each merge strategy.
const mergeSchema = `{type: object, properties: {spec: {type: object, properties: {
	set: {type: array, x-kubernetes-list-type: set, items: {type: string}},
	map: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name, protocol], items: {type: object, required: [name],
		properties: {name: {type: string}, protocol: {type: string, default: TCP}, value: {type: integer}, other: {type: integer}}}},
	atomic: {type: array, x-kubernetes-list-type: atomic, items: {type: string}},
	list: {type: array, items: {type: string}},
	granular: {type: object, additionalProperties: {type: string}},
	whole: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: string}},
	struct: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}, b: {type: string}}},
	preset: {type: string, default: standard},
	free: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}`

// spec returns the Widget w to apply, with a spec in YAML.
func spec(groupVersion, text string) map[string]any {
	return kit.Manifest("{apiVersion: %s, kind: Widget, metadata: {name: w}, spec: {%s}}", groupVersion, text)
}

var applyMerges = []kit.Promise{
	{Statement: "the elements of a set are owned individually", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, mergeSchema)
		path := c.Path(groupVersion, "widgets", "w")
		c.Apply(t, path, "one", spec(groupVersion, "set: [a, b]")).Created(t)
		a := c.Apply(t, path, "two", spec(groupVersion, "set: [b, c]")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "set"), []any{"a", "b", "c"})
		kit.Equal(t, owned(t, a, "two Apply"), []string{`.spec.set["b"]`, `.spec.set["c"]`})
		a = c.Apply(t, path, "two", spec(groupVersion, "set: []")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "set"), []any{"a", "b"})
		// kube-apiserver returns 500 without a reason.
		c.Apply(t, path, "two", spec(groupVersion, "set: [d, d]")).Want(t, http.StatusBadRequest, http.StatusInternalServerError)
		kit.Equal(t, c.Get(t, path).Value(t, "spec", "set"), []any{"a", "b"})
	}},
	{Statement: "the elements of a list are identified by all of its keys, with their defaults, and owned field by field", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, mergeSchema)
		path := c.Path(groupVersion, "widgets", "w")
		c.Apply(t, path, "one", spec(groupVersion, "map: [{name: a, value: 1}]")).Created(t)
		a := c.Apply(t, path, "two", spec(groupVersion,
			"map: [{name: a, protocol: TCP, other: 2}, {name: a, protocol: UDP, value: 3}]")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "map"), []any{
			map[string]any{"name": "a", "protocol": "TCP", "value": 1.0, "other": 2.0},
			map[string]any{"name": "a", "protocol": "UDP", "value": 3.0},
		})
		conflicts(t, c.Apply(t, path, "three", spec(groupVersion, "map: [{name: a, value: 4}]")),
			`conflict with "one": .spec.map[name="a",protocol="TCP"].value`)
		// Fields without an owner are removed, and with the last one the element.
		a = c.Apply(t, path, "one", spec(groupVersion, "map: []")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "map").([]any)[0], map[string]any{"name": "a", "protocol": "TCP", "other": 2.0})
		a = c.Apply(t, path, "two", spec(groupVersion, "map: [{name: a, protocol: UDP, value: 3}]")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "map"), []any{map[string]any{"name": "a", "protocol": "UDP", "value": 3.0}})
	}},
	{Statement: "an atomic list, map or struct has one owner, and is replaced as a whole", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, mergeSchema)
		path := c.Path(groupVersion, "widgets", "w")
		a := c.Apply(t, path, "one", spec(groupVersion, "atomic: [a], list: [a], whole: {a: '1'}, struct: {a: '1'}")).Created(t)
		kit.Equal(t, owned(t, a, "one Apply"), []string{".spec.atomic", ".spec.list", ".spec.struct", ".spec.whole"})
		changed := spec(groupVersion, "atomic: [b], list: [b], whole: {b: '1'}, struct: {b: '1'}")
		conflicts(t, c.Apply(t, path, "two", changed), `conflict with "one": .spec.atomic`, `conflict with "one": .spec.list`,
			`conflict with "one": .spec.struct`, `conflict with "one": .spec.whole`)
		a = c.Apply(t, path, "two&force=true", changed).OK(t)
		kit.Equal(t, kit.With(a.Object(t), "standard", "spec", "preset")["spec"], kit.With(changed, "standard", "spec", "preset")["spec"])
		kit.Equal(t, managersOf(t, a), []string{"two"})
	}},
	{Statement: "a map is granular by default: its keys are owned individually", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, mergeSchema)
		path := c.Path(groupVersion, "widgets", "w")
		c.Apply(t, path, "one", spec(groupVersion, "granular: {a: '1', b: '1'}")).Created(t)
		a := c.Apply(t, path, "two", spec(groupVersion, "granular: {b: '1', c: '2'}")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "granular"), map[string]any{"a": "1", "b": "1", "c": "2"})
		a = c.Apply(t, path, "one", spec(groupVersion, "granular: {}")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "granular"), map[string]any{"b": "1", "c": "2"})
	}},
	{Statement: "if a schema does not specify it, maps are granular and lists atomic", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		path := c.Path(groupVersion, "widgets", "w")
		c.Apply(t, path, "one", spec(groupVersion, "deep: {map: {a: 1}, list: [{name: a}]}")).Created(t)
		a := c.Apply(t, path, "two", spec(groupVersion, "deep: {map: {b: 2}}")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "deep", "map"), map[string]any{"a": 1.0, "b": 2.0})
		conflicts(t, c.Apply(t, path, "two", spec(groupVersion, "deep: {list: [{name: b}]}")), `conflict with "one": .spec.deep.list`)
	}},
	{Statement: "a field of a custom resource that is no longer applied gets its default", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, mergeSchema)
		path := c.Path(groupVersion, "widgets", "w")
		kit.Equal(t, c.Apply(t, path, "one", spec(groupVersion, "preset: own")).Created(t).Text(t, "spec", "preset"), "own")
		a := c.Apply(t, path, "one", spec(groupVersion, "list: [a]")).OK(t)
		kit.Equal(t, a.Text(t, "spec", "preset"), "standard")
		kit.Equal(t, owned(t, a, "one Apply"), []string{".spec.list"})
	}},
	{Statement: "built-in types have merge strategies, too: ports by port and protocol, selectors as a whole", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "services", "a")
		ports := func(text string) map[string]any {
			return kit.Manifest("{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [%s]}}", text)
		}
		c.Apply(t, path, "one", ports("{name: a, port: 80}")).Created(t)
		a := c.Apply(t, path, "two", ports("{name: b, port: 80, protocol: UDP}")).OK(t)
		kit.Equal(t, owned(t, a, "two Apply"), []string{`.spec.ports[{"port":80,"protocol":"UDP"}].name`,
			`.spec.ports[{"port":80,"protocol":"UDP"}].port`,
			`.spec.ports[{"port":80,"protocol":"UDP"}].protocol`})
		conflicts(t, c.Apply(t, path, "two", ports("{name: c, port: 80, protocol: TCP}")),
			`conflict with "one": .spec.ports[port=80,protocol="TCP"].name`)
		selecting := func(text string) map[string]any {
			return kit.With(ports(""), kit.Manifest("%s", text), "spec", "selector")
		}
		c.Apply(t, path, "one", kit.With(selecting("{app: a}"),
			ports("{name: a, port: 80}")["spec"].(map[string]any)["ports"], "spec", "ports")).OK(t)
		conflicts(t, c.Apply(t, path, "three", selecting("{other: b}")), `conflict with "one": .spec.selector`)
	}},
}

// applyTopologies are about definitions whose merge strategy for a field changes: "Compatibility across topology changes".
var applyTopologies = []kit.Promise{
	{Statement: "when a map changes from atomic to granular, its owner keeps the map, and others may set its keys", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion, redefine := mapType(t, c, "atomic")
		path := c.Path(groupVersion, "widgets", "w")
		c.Apply(t, path, "manager-one", spec(groupVersion, "data: {key1: val1, key2: val2}")).Created(t)
		conflicts(t, c.Apply(t, path, "manager-two", spec(groupVersion, "data: {key1: val9}")),
			`conflict with "manager-one": .spec.data`)
		redefine("granular")
		harness.Eventually(t, "the keys have no owner", func() bool {
			return c.Apply(t, path, "manager-two", spec(groupVersion, "data: {key1: val9}")).Want(t, http.StatusOK,
				http.StatusConflict).Code == http.StatusOK
		})
		a := c.Get(t, path)
		kit.Equal(t, a.Value(t, "spec", "data"), map[string]any{"key1": "val9", "key2": "val2"})
		kit.Equal(t, owned(t, a, "manager-one Apply"), []string{".spec.data"})
		kit.Equal(t, owned(t, a, "manager-two Apply"), []string{".spec.data.key1"})
	}},
	{Statement: "when a map changes from granular to atomic, all owners of a part own the whole", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion, redefine := mapType(t, c, "granular")
		path := c.Path(groupVersion, "widgets", "w")
		c.Apply(t, path, "manager-one", spec(groupVersion, "data: {key1: val1}")).Created(t)
		c.Apply(t, path, "manager-two", spec(groupVersion, "data: {key2: val2}")).OK(t)
		redefine("atomic")
		third := spec(groupVersion, "data: {key3: val3}")
		harness.Eventually(t, "a new key conflicts", func() bool {
			return c.Apply(t, path, "manager-three&dryRun=All", third).Want(t, http.StatusOK,
				http.StatusConflict).Code == http.StatusConflict
		})
		conflicts(t, c.Apply(t, path, "manager-three", third), `conflict with "manager-one": .spec.data`,
			`conflict with "manager-two": .spec.data`)
		conflicts(t, c.Apply(t, path, "manager-one", spec(groupVersion, "data: {key1: other}")),
			`conflict with "manager-two": .spec.data`)
		kit.Equal(t, c.Get(t, path).Value(t, "spec", "data"), map[string]any{"key1": "val1", "key2": "val2"})
	}},
}

// mapType defines widgets whose field data is a map of a type, which the returned function changes.
func mapType(t *testing.T, c *kit.Cluster, kind string) (groupVersion string, redefine func(kind string)) {
	schema := func(kind string) string {
		return `{type: object, properties: {spec: {type: object, properties: {data: {type: object, x-kubernetes-map-type: ` + kind +
			`, additionalProperties: {type: string}}}}}}`
	}
	groupVersion = c.DefineWidgets(t, schema(kind))
	group := groupVersion[:len(groupVersion)-len("/v1")]
	return groupVersion, func(kind string) {
		path := kit.Definitions + "/widgets." + group
		c.Patch(t, kit.MergePatch, path, map[string]any{"spec": kit.WidgetDefinition(group, schema(kind))["spec"]}).OK(t)
	}
}
