package customresources

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// every is a schema of spec with about every kind of validation.
const every = `
spec:
  type: object
  required: [name]
  minProperties: 1
  maxProperties: 6
  properties:
    name: {type: string, minLength: 2, maxLength: 5, pattern: "^[a-z]*$"}
    count: {type: integer, minimum: 0, maximum: 10, exclusiveMaximum: true, multipleOf: 2}
    small: {type: integer, format: int32}
    ratio: {type: number}
    flag: {type: boolean}
    color: {type: string, enum: [red, green]}
    parts:
      type: array
      minItems: 1
      maxItems: 2
      items: {type: object, required: [id], properties: {id: {type: string}}}
    labels: {type: object, additionalProperties: {type: integer}}
    port: {x-kubernetes-int-or-string: true}
    gone: {type: string, nullable: true}
    either:
      type: object
      properties: {a: {type: string}, b: {type: string}}
      oneOf: [{required: [a]}, {required: [b]}]
    any: {type: integer, anyOf: [{minimum: 10}, {maximum: -10}]}
    all: {type: string, allOf: [{minLength: 2}, {pattern: "^x"}]}
    never: {type: string, not: {enum: [never]}}
    at: {type: string, format: date-time}
    day: {type: string, format: date}
    mail: {type: string, format: email}
    ip: {type: string, format: ipv4}
    id: {type: string, format: uuid}
    wait: {type: string, format: duration}
    bytes: {type: string, format: byte}
    free: {type: string, format: nothing-that-is-known}
`

var customSchemas = []kit.Promise{
	{Statement: "a value that the schema does not allow is rejected with its path", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", every))
		for fields, part := range map[string]string{
			"spec: {}":                                             "spec.name: Required value",
			"spec: text":                                           `spec: Invalid value: "string": spec in body must be of type object: "string"`,
			"spec: {name: 5}":                                      `spec.name: Invalid value: "integer": spec.name in body must be of type string: "integer"`,
			"spec: {name: a}":                                      `spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long`,
			"spec: {name: abcdef}":                                 `spec.name: Too long: may not be more than 5 bytes`,
			"spec: {name: AB}":                                     `spec.name: Invalid value: "AB": spec.name in body should match '^[a-z]*$'`,
			"spec: {name: ab, count: -2}":                          "spec.count: Invalid value: -2: spec.count in body should be greater than or equal to 0",
			"spec: {name: ab, count: 10}":                          "spec.count: Invalid value: 10: spec.count in body should be less than 10",
			"spec: {name: ab, count: 3}":                           "spec.count: Invalid value: 3: spec.count in body should be a multiple of 2",
			"spec: {name: ab, count: 1.5}":                         `spec.count: Invalid value: "number": spec.count in body must be of type integer: "number"`,
			"spec: {name: ab, small: 3000000000}":                  "must be of type integer with format int32 in spec.small",
			"spec: {name: ab, ratio: half}":                        `spec.ratio: Invalid value: "string": spec.ratio in body must be of type number: "string"`,
			"spec: {name: ab, flag: 'yes'}":                        `spec.flag: Invalid value: "string": spec.flag in body must be of type boolean: "string"`,
			"spec: {name: ab, color: blue}":                        `spec.color: Unsupported value: "blue": supported values: "red", "green"`,
			"spec: {name: ab, parts: []}":                          "spec.parts: Invalid value: 0: spec.parts in body should have at least 1 items",
			"spec: {name: ab, parts: [{id: a}, {id: b}, {id: c}]}": "spec.parts: Too many: 3: must have at most 2 items",
			"spec: {name: ab, parts: [{id: a}, {}]}":               "spec.parts[1].id: Required value",
			"spec: {name: ab, parts: {id: a}}":                     `spec.parts: Invalid value: "object": spec.parts in body must be of type array: "object"`,
			"spec: {name: ab, labels: {x: a}}":                     `spec.labels.x: Invalid value: "string": spec.labels.x in body must be of type integer: "string"`,
			"spec: {name: ab, port: true}":                         "spec.port: Invalid value: ",
			"spec: {name: ab, either: {a: x, b: y}}":               `"spec.either" must validate one and only one schema (oneOf). Found 2 valid alternatives`,
			"spec: {name: ab, either: {}}":                         `"spec.either" must validate one and only one schema (oneOf). Found none valid`,
			"spec: {name: ab, any: 0}":                             `"spec.any" must validate at least one schema (anyOf)`,
			"spec: {name: ab, all: xy, never: never}":              `"spec.never" must not validate the schema (not)`,
			"spec: {name: ab, all: ab}":                            "spec.all in body should match '^x'",
			"spec: {name: ab, at: yesterday}":                      `spec.at: Invalid value: "yesterday": spec.at in body must be of type date-time: "yesterday"`,
			"spec: {name: ab, day: 2020-13-40}":                    "spec.day in body must be of type date",
			"spec: {name: ab, mail: nobody}":                       "spec.mail in body must be of type email",
			"spec: {name: ab, ip: 1.2.3.400}":                      "spec.ip in body must be of type ipv4",
			"spec: {name: ab, id: abc}":                            "spec.id in body must be of type uuid",
			"spec: {name: ab, wait: soon}":                         "spec.wait in body must be of type duration",
			"spec: {name: ab, bytes: '!'}":                         "spec.bytes in body must be of type byte",
			"spec: {name: ab, count: 2, small: 1, ratio: 1, flag: true, color: red, any: 10}": "spec: Too many: 7: must have at most 6 items",
		} {
			w.Create(t, "a", fields).Invalid(t, `Widget.`+w.Group+` "a" is invalid`, part)
		}
	}},
	{Statement: "a value that the schema allows is stored unchanged", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", every))
		for name, spec := range map[string]string{
			"numbers": `{"count":8,"name":"ab","ratio":0.5,"small":-5}`,
			"zeros":   `{"color":"red","count":0,"flag":false,"name":"ab","ratio":0}`,
			"port":    `{"name":"ab","port":80}`,
			"named":   `{"name":"ab","port":"http"}`,
			"nothing": `{"gone":null,"name":"ab"}`,
			"nested":  `{"either":{"a":"x"},"labels":{"x":1},"name":"ab","parts":[{"id":"a"}]}`,
			"formats": `{"at":"2020-01-01T00:00:00Z","bytes":"YQ==","free":"x","ip":"1.2.3.4","name":"ab","wait":"5s"}`,
			"limits":  `{"all":"xy","any":-10,"name":"abcde","never":"always"}`,
		} {
			w.Create(t, name, "spec: "+spec).Created(t).HasField(t, spec, "spec")
			c.Get(t, w.At("v1", name)).OK(t).HasField(t, spec, "spec")
		}
	}},
	{Statement: "all errors of an object are reported at once", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", every))
		a := w.Create(t, "a", "spec: {count: 11, color: blue, flag: 1}").
			Invalid(t, "spec.name: Required value", "spec.count: ", "spec.color: ", "spec.flag: ")
		causes, _ := a.Value(t, "details", "causes").([]any)
		var fields []string
		for _, cause := range causes {
			fields = append(fields, cause.(map[string]any)["field"].(string))
		}
		slices.Sort(fields)
		if fields = slices.Compact(fields); !slices.Equal(fields, []string{"spec.color", "spec.count", "spec.flag", "spec.name"}) {
			t.Errorf("the fields of the causes are %q", fields)
		}
	}},
	{Statement: "updates and patches are validated like creates", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", every))
		object := w.Create(t, "a", "spec: {name: ab}").Created(t).Object(t)
		kit.SetField(object, "blue", "spec", "color")
		c.Put(t, w.At("v1", "a"), object).Invalid(t, "spec.color: Unsupported value")
		c.Patch(t, kit.MergePatch, w.At("v1", "a"), `{"spec":{"color":"blue"}}`).Invalid(t, "spec.color: Unsupported value")
		c.Patch(t, kit.JSONPatch, w.At("v1", "a"), `[{"op":"remove","path":"/spec/name"}]`).Invalid(t, "spec.name: Required value")
		c.Patch(t, kit.MergePatch, w.At("v1", "a"), `{"spec":{"color":"red"}}`).OK(t).
			HasField(t, `{"color":"red","name":"ab"}`, "spec")
	}},
	{Statement: "unknown fields are dropped or reported, according to fieldValidation", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "spec: {type: object, properties: {a: {type: object, properties: {b: {type: integer}}}}}"))
		fields := "spec: {a: {b: 1, x: 2}, w: 3}\nz: 4"
		w.Create(t, "warned", fields).Created(t).HasField(t, `{"a":{"b":1}}`, "spec").HasField(t, "", "z").
			Warns(t, `unknown field "spec.a.x"`, `unknown field "spec.w"`, `unknown field "z"`)
		c.Post(t, w.At("v1")+"?fieldValidation=Ignore", w.Widget("ignored", fields)).Created(t).
			HasField(t, `{"a":{"b":1}}`, "spec").Warns(t)
		c.Post(t, w.At("v1")+"?fieldValidation=Strict", w.Widget("strict", fields)).
			BadRequest(t,
				`strict decoding error: unknown field "spec.a.x", unknown field "spec.w", unknown field "z"`)
		c.Patch(t, kit.MergePatch, w.At("v1", "warned"), `{"spec":{"a":{"x":5}}}`).OK(t).
			HasField(t, `{"a":{"b":1}}`, "spec")
	}},
	{Statement: "x-kubernetes-preserve-unknown-fields keeps unknown fields, only where it is set", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  properties:
    open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: object, properties: {a: {type: string}}}}}
    shut: {type: object}
    map: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}`))
		w.Create(t, "a", "spec: {open: {x: {w: 1}, known: {a: b, z: 1}}, shut: {x: 1}, map: {k: {a: b, x: 1}}}").Created(t).
			HasField(t, `{"map":{"k":{"a":"b"}},"open":{"known":{"a":"b"},"x":{"w":1}},"shut":{}}`, "spec")
		everything := c.Namespace
		c.Patch(t, kit.MergePatch, w.At("v1", "a"), map[string]any{"spec": map[string]any{"open": map[string]any{"x": everything}}}).
			OK(t).HasField(t, `"`+everything+`"`, "spec", "open", "x")
	}},
	{Statement: "fields removed from the schema are dropped on reads", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "spec: {type: object, properties: {a: {type: string}, b: {type: string}}}"))
		w.Create(t, "a", "spec: {a: x, b: z}").Created(t)
		w.Redefine(t, func(spec map[string]any) {
			spec["versions"] = []any{kit.CRDVersion("v1", "spec: {type: object, properties: {a: {type: string}}}", "storage: true")}
		}).OK(t)
		harness.Eventually(t, "the field is gone", func() bool { return c.Get(t, w.At("v1", "a")).FieldJSON(t, "spec") == `{"a":"x"}` })
		if list := c.Get(t, w.At("v1")); strings.Contains(string(list.Body), `"b":`) {
			t.Errorf("the list still has it:\n%s", list.Body)
		}
	}},
	{Statement: "unknown metadata of a custom resource is dropped, and its name may be generated", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		w.Create(t, "a", "metadata: {unknown: 5}").Created(t).HasField(t, "", "metadata", "unknown").
			HasField(t, "1", "metadata", "generation")
		generated := w.Widget("", "metadata: {generateName: g-}")
		delete(generated["metadata"].(map[string]any), "name")
		if name := c.Post(t, w.At("v1"), generated).Created(t).Text(t, "metadata", "name"); !strings.HasPrefix(name, "g-") || len(name) != 7 {
			t.Errorf("the generated name is %q", name)
		}
	}},
	{Statement: "the schema may restrict metadata.name", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "metadata: {type: object, properties: {name: {type: string, maxLength: 3}}}"))
		w.Create(t, "abc", "{}").Created(t)
		w.Create(t, "abcd", "{}").Invalid(t, "metadata.name: Too long: may not be more than 3 bytes")
	}},
	{Statement: "an embedded resource is validated as one, and its unknown metadata dropped", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  properties:
    template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`))
		w.Create(t, "a", "spec: {template: {apiVersion: v1, kind: Pod, metadata: {name: p, unknown: x}, spec: {a: b}}}").Created(t).
			HasField(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"a":"b"}}`, "spec", "template")
		for template, part := range map[string]string{
			"{kind: Pod}":                    "spec.template.apiVersion: Required value",
			"{apiVersion: v1}":               "spec.template.kind: Required value",
			"{apiVersion: a/b/c, kind: Pod}": `spec.template.apiVersion: Invalid value: "a/b/c"`,
			"{apiVersion: v1, kind: P-}":     `spec.template.kind: Invalid value: "P-"`,
			"{apiVersion: v1, kind: Pod, metadata: {labels: {a: '-'}}}": "spec.template.metadata.labels: Invalid value: ",
		} {
			w.Create(t, "b", "spec: {template: "+template+"}").Invalid(t, part)
		}
	}},
	{Statement: "the items of a set and the keys of a list map are unique", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  properties:
    set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
    atomic: {type: array, x-kubernetes-list-type: atomic, items: {type: string}}
    ports:
      type: array
      x-kubernetes-list-type: map
      x-kubernetes-list-map-keys: [port, protocol]
      items: {type: object, required: [port], properties: {port: {type: integer}, protocol: {type: string, default: TCP}}}`))
		w.Create(t, "set", "spec: {set: [a, b, a]}").Invalid(t, `spec.set[2]: Duplicate value: "a"`)
		w.Create(t, "map", "spec: {ports: [{port: 1}, {port: 1, protocol: TCP}]}").
			Invalid(t, `spec.ports[1]: Duplicate value: {"port":1,"protocol":"TCP"}`)
		w.Create(t, "fine", "spec: {set: [a, b], atomic: [a, a], ports: [{port: 1}, {port: 1, protocol: UDP}]}").Created(t)
	}},
	{Statement: "a body above the limit is rejected with 413", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		w.Create(t, "a", "spec: {a: "+strings.Repeat("x", 4<<20)+"}").
			Refused(t, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge")
		w.Create(t, "a", "spec: {a: "+strings.Repeat("x", 1<<20)+"}").Created(t)
		w.Create(t, "b", "metadata: {annotations: {a: "+strings.Repeat("x", 256<<10)+"}}").
			Invalid(t, "metadata.annotations: Too long: may not be more than 262144 bytes")
	}},
}

var customDefaults = []kit.Promise{
	{Statement: "a missing field gets its default if its parent object exists", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  properties:
    size: {type: integer, default: 3}
    list: {type: array, items: {type: object, properties: {flag: {type: boolean, default: true}}}}
    map: {type: object, additionalProperties: {type: object, properties: {flag: {type: boolean, default: true}}}}
    deep: {type: object, default: {a: x}, properties: {a: {type: string}, b: {type: string, default: w}}}
    absent: {type: object, properties: {c: {type: string, default: z}}}`))
		w.Create(t, "none", "{}").Created(t).HasField(t, "", "spec")
		w.Create(t, "empty", "spec: {}").Created(t).HasField(t, `{"deep":{"a":"x","b":"w"},"size":3}`, "spec")
		w.Create(t, "some", "spec: {size: 0, list: [{}, {flag: false}], map: {k: {}}, deep: {}, absent: {}}").Created(t).
			HasField(t, `{"absent":{"c":"z"},"deep":{"b":"w"},"list":[{"flag":true},{"flag":false}],"map":{"k":{"flag":true}},"size":0}`, "spec")
		c.Patch(t, kit.MergePatch, w.At("v1", "some"), `{"spec":{"size":null}}`).OK(t).
			HasField(t, "3", "spec", "size")
	}},
	{Statement: "null is replaced by the default, or dropped, unless the field is nullable", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  properties:
    a: {type: string, default: x}
    b: {type: string, nullable: true, default: x}
    c: {type: string, nullable: true}`))
		w.Create(t, "a", "spec: {a: null, b: null, c: null}").Created(t).
			HasField(t, `{"a":"x","b":null,"c":null}`, "spec")
	}},
	{Statement: "objects stored before a default existed have it on reads", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "spec: {type: object, properties: {a: {type: string}}}"))
		made := w.Create(t, "a", "spec: {}").Created(t)
		w.Redefine(t, func(spec map[string]any) {
			spec["versions"] = []any{kit.CRDVersion("v1", "spec: {type: object, properties: {a: {type: string, default: x}}}",
				"storage: true")}
		}).OK(t)
		harness.Eventually(t, "the object has the default", func() bool { return c.Get(t, w.At("v1", "a")).FieldJSON(t, "spec") == `{"a":"x"}` })
		if read := c.Get(t, w.At("v1", "a")); read.ResourceVersion(t) != made.ResourceVersion(t) {
			t.Errorf("it was written: %s instead of %s", read.ResourceVersion(t), made.ResourceVersion(t))
		}
		if list := c.Get(t, w.At("v1")); !strings.Contains(string(list.Body), `"spec":{"a":"x"}`) {
			t.Errorf("the list lacks it:\n%s", list.Body)
		}
		if e := c.Watch(t, w.At("v1")+"?watch=true&resourceVersion=0").Next(t); e.Name() != "a" || e.Object["spec"].(map[string]any)["a"] != "x" {
			t.Errorf("the watch has %v", e)
		}
	}},
	{Statement: "a default that violates its schema is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.CustomResource()
		for properties, part := range map[string]string{
			"spec: {type: object, properties: {a: {type: string, enum: [x], default: z}}}":                    `properties[spec].properties[a].default: Unsupported value: "z": supported values: "x"`,
			"spec: {type: object, properties: {a: {type: object, default: {b: 1}}}}":                          `properties[a].default: Invalid value: {"b":1}: must not have unknown fields`,
			"metadata: {type: object, properties: {name: {type: string, default: x}}}":                        "properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
			"spec: {type: object, anyOf: [{properties: {a: {default: x}}}], properties: {a: {type: string}}}": "anyOf[0].properties[a].default: Forbidden: must be undefined to be structural",
		} {
			c.Post(t, kit.Definitions, w.Definition(kit.CRDVersion("v1", properties))).Invalid(t, part)
		}
	}},
}
