package concepts

import (
	"net/http"
	"testing"
)

// mergeSchema has a field of each way to merge.
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

// spec is the Widget w as it is applied, with a spec in YAML.
func spec(groupVersion, text string) map[string]any {
	return manifest("{apiVersion: %s, kind: Widget, metadata: {name: w}, spec: {%s}}", groupVersion, text)
}

var applyMerges = []promise{
	{"the elements of a set are owned one by one", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, mergeSchema)
		path := c.path(groupVersion, "widgets", "w")
		c.apply(t, path, "one", spec(groupVersion, "set: [a, b]")).created(t)
		a := c.apply(t, path, "two", spec(groupVersion, "set: [b, c]")).ok(t)
		equal(t, a.value(t, "spec", "set"), []any{"a", "b", "c"})
		equal(t, owned(t, a, "two Apply"), []string{`.spec.set["b"]`, `.spec.set["c"]`})
		a = c.apply(t, path, "two", spec(groupVersion, "set: []")).ok(t)
		equal(t, a.value(t, "spec", "set"), []any{"a", "b"})
		// kube-apiserver answers 500 and gives no reason.
		c.apply(t, path, "two", spec(groupVersion, "set: [d, d]")).want(t, http.StatusBadRequest, http.StatusInternalServerError)
		equal(t, c.get(t, path).value(t, "spec", "set"), []any{"a", "b"})
	}},
	{"the elements of a list are told apart by all of its keys, with their defaults, and owned field by field", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, mergeSchema)
		path := c.path(groupVersion, "widgets", "w")
		c.apply(t, path, "one", spec(groupVersion, "map: [{name: a, value: 1}]")).created(t)
		a := c.apply(t, path, "two", spec(groupVersion,
			"map: [{name: a, protocol: TCP, other: 2}, {name: a, protocol: UDP, value: 3}]")).ok(t)
		equal(t, a.value(t, "spec", "map"), []any{
			map[string]any{"name": "a", "protocol": "TCP", "value": 1.0, "other": 2.0},
			map[string]any{"name": "a", "protocol": "UDP", "value": 3.0},
		})
		conflicts(t, c.apply(t, path, "three", spec(groupVersion, "map: [{name: a, value: 4}]")),
			`conflict with "one": .spec.map[name="a",protocol="TCP"].value`)
		// What of an element nobody owns goes, and with the last the element.
		a = c.apply(t, path, "one", spec(groupVersion, "map: []")).ok(t)
		equal(t, a.value(t, "spec", "map").([]any)[0], map[string]any{"name": "a", "protocol": "TCP", "other": 2.0})
		a = c.apply(t, path, "two", spec(groupVersion, "map: [{name: a, protocol: UDP, value: 3}]")).ok(t)
		equal(t, a.value(t, "spec", "map"), []any{map[string]any{"name": "a", "protocol": "UDP", "value": 3.0}})
	}},
	{"an atomic list, map or struct has one owner, who owns all of it, and is replaced as a whole", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, mergeSchema)
		path := c.path(groupVersion, "widgets", "w")
		a := c.apply(t, path, "one", spec(groupVersion, "atomic: [a], list: [a], whole: {a: '1'}, struct: {a: '1'}")).created(t)
		equal(t, owned(t, a, "one Apply"), []string{".spec.atomic", ".spec.list", ".spec.struct", ".spec.whole"})
		changed := spec(groupVersion, "atomic: [b], list: [b], whole: {b: '1'}, struct: {b: '1'}")
		conflicts(t, c.apply(t, path, "two", changed), `conflict with "one": .spec.atomic`, `conflict with "one": .spec.list`,
			`conflict with "one": .spec.struct`, `conflict with "one": .spec.whole`)
		a = c.apply(t, path, "two&force=true", changed).ok(t)
		equal(t, with(a.object(t), "standard", "spec", "preset")["spec"], with(changed, "standard", "spec", "preset")["spec"])
		equal(t, managersOf(t, a), []string{"two"})
	}},
	{"a map is granular by default: its keys are owned one by one", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, mergeSchema)
		path := c.path(groupVersion, "widgets", "w")
		c.apply(t, path, "one", spec(groupVersion, "granular: {a: '1', b: '1'}")).created(t)
		a := c.apply(t, path, "two", spec(groupVersion, "granular: {b: '1', c: '2'}")).ok(t)
		equal(t, a.value(t, "spec", "granular"), map[string]any{"a": "1", "b": "1", "c": "2"})
		a = c.apply(t, path, "one", spec(groupVersion, "granular: {}")).ok(t)
		equal(t, a.value(t, "spec", "granular"), map[string]any{"b": "1", "c": "2"})
	}},
	{"where a schema says nothing, maps are granular and lists atomic", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		path := c.path(groupVersion, "widgets", "w")
		c.apply(t, path, "one", spec(groupVersion, "deep: {map: {a: 1}, list: [{name: a}]}")).created(t)
		a := c.apply(t, path, "two", spec(groupVersion, "deep: {map: {b: 2}}")).ok(t)
		equal(t, a.value(t, "spec", "deep", "map"), map[string]any{"a": 1.0, "b": 2.0})
		conflicts(t, c.apply(t, path, "two", spec(groupVersion, "deep: {list: [{name: b}]}")), `conflict with "one": .spec.deep.list`)
	}},
	{"a field of a custom resource that nobody applies any more gets its default", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, mergeSchema)
		path := c.path(groupVersion, "widgets", "w")
		equal(t, c.apply(t, path, "one", spec(groupVersion, "preset: own")).created(t).text(t, "spec", "preset"), "own")
		a := c.apply(t, path, "one", spec(groupVersion, "list: [a]")).ok(t)
		equal(t, a.text(t, "spec", "preset"), "standard")
		equal(t, owned(t, a, "one Apply"), []string{".spec.list"})
	}},
	{"what is built in has its ways to merge, too: ports by port and protocol, selectors as a whole", func(t *testing.T, c *cluster) {
		path := c.path("v1", "services", "a")
		ports := func(text string) map[string]any {
			return manifest("{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [%s]}}", text)
		}
		c.apply(t, path, "one", ports("{name: a, port: 80}")).created(t)
		a := c.apply(t, path, "two", ports("{name: b, port: 80, protocol: UDP}")).ok(t)
		equal(t, owned(t, a, "two Apply"), []string{`.spec.ports[{"port":80,"protocol":"UDP"}].name`,
			`.spec.ports[{"port":80,"protocol":"UDP"}].port`,
			`.spec.ports[{"port":80,"protocol":"UDP"}].protocol`})
		conflicts(t, c.apply(t, path, "two", ports("{name: c, port: 80, protocol: TCP}")),
			`conflict with "one": .spec.ports[port=80,protocol="TCP"].name`)
		selecting := func(text string) map[string]any { return with(ports(""), manifest("%s", text), "spec", "selector") }
		c.apply(t, path, "one", with(selecting("{app: a}"),
			ports("{name: a, port: 80}")["spec"].(map[string]any)["ports"], "spec", "ports")).ok(t)
		conflicts(t, c.apply(t, path, "three", selecting("{other: b}")), `conflict with "one": .spec.selector`)
	}},
}

// applyTopologies are about definitions whose way to merge a field changes: "Compatibility across topology changes".
var applyTopologies = []promise{
	{"when a map changes from atomic to granular its owner keeps the map, and others may set its keys", func(t *testing.T, c *cluster) {
		groupVersion, redefine := c.mapType(t, "atomic")
		path := c.path(groupVersion, "widgets", "w")
		c.apply(t, path, "manager-one", spec(groupVersion, "data: {key1: val1, key2: val2}")).created(t)
		conflicts(t, c.apply(t, path, "manager-two", spec(groupVersion, "data: {key1: val9}")),
			`conflict with "manager-one": .spec.data`)
		redefine("granular")
		eventually(t, "the keys are nobody's", func() bool {
			return c.apply(t, path, "manager-two", spec(groupVersion, "data: {key1: val9}")).want(t, http.StatusOK,
				http.StatusConflict).Code == http.StatusOK
		})
		a := c.get(t, path)
		equal(t, a.value(t, "spec", "data"), map[string]any{"key1": "val9", "key2": "val2"})
		equal(t, owned(t, a, "manager-one Apply"), []string{".spec.data"})
		equal(t, owned(t, a, "manager-two Apply"), []string{".spec.data.key1"})
	}},
	{"when a map changes from granular to atomic, all who owned a part of it own the whole", func(t *testing.T, c *cluster) {
		groupVersion, redefine := c.mapType(t, "granular")
		path := c.path(groupVersion, "widgets", "w")
		c.apply(t, path, "manager-one", spec(groupVersion, "data: {key1: val1}")).created(t)
		c.apply(t, path, "manager-two", spec(groupVersion, "data: {key2: val2}")).ok(t)
		redefine("atomic")
		third := spec(groupVersion, "data: {key3: val3}")
		eventually(t, "a new key conflicts", func() bool {
			return c.apply(t, path, "manager-three&dryRun=All", third).want(t, http.StatusOK,
				http.StatusConflict).Code == http.StatusConflict
		})
		conflicts(t, c.apply(t, path, "manager-three", third), `conflict with "manager-one": .spec.data`,
			`conflict with "manager-two": .spec.data`)
		conflicts(t, c.apply(t, path, "manager-one", spec(groupVersion, "data: {key1: other}")),
			`conflict with "manager-two": .spec.data`)
		equal(t, c.get(t, path).value(t, "spec", "data"), map[string]any{"key1": "val1", "key2": "val2"})
	}},
}

// mapType defines widgets whose field data is a map of a type, which the function it returns changes.
func (c *cluster) mapType(t *testing.T, kind string) (groupVersion string, redefine func(kind string)) {
	schema := func(kind string) string {
		return `{type: object, properties: {spec: {type: object, properties: {data: {type: object, x-kubernetes-map-type: ` + kind +
			`, additionalProperties: {type: string}}}}}}`
	}
	groupVersion = c.widgets(t, schema(kind))
	group := groupVersion[:len(groupVersion)-len("/v1")]
	return groupVersion, func(kind string) {
		path := definitions + "/widgets." + group
		c.patch(t, mergePatch, path, map[string]any{"spec": widgetDefinition(group, schema(kind))["spec"]}).ok(t)
	}
}
