package concepts

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Custom resources: what CustomResourceDefinitions promise. One server for all its subjects, which have a file each.
func TestCustomResources(t *testing.T) {
	prove(t, nil, slices.Concat(
		customDefinitions, customSchemas, customDefaults, customRules, customServing, customVersions, customConversion,
	)...)
}

const anySpec = "spec: {type: object, x-kubernetes-preserve-unknown-fields: true}"

var customDefinitions = []promise{
	{"a definition is created with 201, and refused with 409 if there is one of that name", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		c.post(t, definitions, w.definition(version("v1", anySpec))).refused(t, http.StatusConflict, "AlreadyExists")
	}},
	{"a definition with the name of a built-in resource touches none of its objects, not even by its end", func(t *testing.T, c *cluster) {
		policies, class := c.path("networking.k8s.io/v1", "networkpolicies"), "/apis/networking.k8s.io/v1/ingressclasses"
		policy := c.post(t, policies, manifest("{metadata: {name: a}, spec: {podSelector: {}}}")).want(t, http.StatusCreated)
		ingress := c.post(t, class, manifest("{metadata: {name: %s}, spec: {controller: example.com/c}}", c.namespace)).want(t, http.StatusCreated)
		c.deleteLater(t, class+"/"+c.namespace)
		for resource, scope := range map[string]string{"networkpolicies": "Namespaced", "ingressclasses": "Cluster"} {
			definition := manifest(`{metadata: {name: %[1]s.networking.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}},
				spec: {group: networking.k8s.io, scope: %[2]s, names: {plural: %[1]s, singular: fake%[1]s, kind: Fake%[1]s},
				versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: %[3]s}}]}}`, resource, scope, anySchema)
			name := c.post(t, definitions, definition).want(t, http.StatusCreated).text(t, "metadata", "name")
			eventually(t, name+" is established", func() bool {
				status, _ := condition(t, c.get(t, definitions+"/"+name), "Established")
				return status == "True"
			})
			c.delete(t, definitions+"/"+name).want(t, http.StatusOK)
			eventually(t, name+" is gone", func() bool { return c.get(t, definitions+"/"+name).Code == http.StatusNotFound })
		}
		for path, before := range map[string]answer{policies + "/a": policy, class + "/" + c.namespace: ingress} {
			if after := c.get(t, path).want(t, http.StatusOK); after.version(t) != before.version(t) {
				t.Errorf("%s has changed: %s", path, after.Body)
			}
		}
	}},
	{"a definition is established when its names are accepted, and its resource is served from then on", func(t *testing.T, c *cluster) {
		w := c.custom()
		c.get(t, w.at("v1")).want(t, http.StatusNotFound)
		w = c.define(t, version("v1", anySpec))
		d := c.get(t, definitions+"/"+w.name()).want(t, http.StatusOK).
			has(t, `{"kind":"Widget","listKind":"WidgetList","plural":"widgets","singular":"widget"}`, "status",
				"acceptedNames").
			has(t, `["v1"]`, "status", "storedVersions")
		for kind, want := range map[string]string{"NamesAccepted": "True NoConflicts", "Established": "True InitialNamesAccepted", "NonStructuralSchema": " "} {
			if status, reason := condition(t, d, kind); status+" "+reason != want {
				t.Errorf("the condition %s is %s %s", kind, status, reason)
			}
		}
		w.create(t, "a", "{}").want(t, http.StatusCreated)
		if list := c.get(t, w.at("v1")).want(t, http.StatusOK); list.text(t, "kind") != "WidgetList" || len(list.names(t)) != 1 {
			t.Errorf("the list is %s", list.Body)
		}
	}},
	{"singular and listKind follow from kind where they are not given", func(t *testing.T, c *cluster) {
		w := c.custom()
		d := w.definition(version("v1", anySpec))
		set(d, manifest("{plural: widgets, kind: Widget}"), "spec", "names")
		c.post(t, definitions, d).want(t, http.StatusCreated).has(t, `"widget"`, "spec", "names", "singular").
			has(t, `"WidgetList"`, "spec", "names", "listKind")
	}},
	{"a definition whose names are taken waits until they are free", func(t *testing.T, c *cluster) {
		first := c.define(t, version("v1", anySpec))
		d := first.definition(version("v1", anySpec))
		name := "gadgets." + first.group
		set(d, name, "metadata", "name")
		set(d, manifest("{plural: gadgets, singular: gadget, shortNames: [gd], kind: Widget}"), "spec", "names")
		c.post(t, definitions, d).want(t, http.StatusCreated)
		eventually(t, "the names are not accepted", func() bool {
			status, reason := condition(t, c.get(t, definitions+"/"+name), "NamesAccepted")
			return status == "False" && reason == "ListKindConflict"
		})
		if status, reason := condition(t, c.get(t, definitions+"/"+name), "Established"); status != "False" || reason != "NotAccepted" {
			t.Errorf("the condition Established is %s %s", status, reason)
		}
		c.get(t, c.path(first.group+"/v1", "gadgets")).want(t, http.StatusNotFound)
		c.delete(t, definitions+"/"+first.name()).want(t, http.StatusOK)
		eventually(t, "the second definition is served", func() bool { return c.get(t, c.path(first.group+"/v1", "gadgets")).Code == http.StatusOK })
	}},
	{"a definition in a protected group needs a link to its approval", func(t *testing.T, c *cluster) {
		w := c.custom()
		w.group = c.namespace + ".k8s.io"
		d := w.definition(version("v1", anySpec))
		c.post(t, definitions, d).invalid(t, "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation")
		approval := "metadata: {annotations: {api-approved.kubernetes.io: %s}}"
		for value, want := range map[string]string{"unapproved, for a test": "False UnapprovedAnnotation", "https://example.com/approval": "True ApprovedAnnotation"} {
			set(d, value, "metadata", "annotations", "api-approved.kubernetes.io")
			c.post(t, definitions, d).want(t, http.StatusCreated)
			eventually(t, approval+" is judged", func() bool {
				status, reason := w.condition(t, "KubernetesAPIApprovalPolicyConformant")
				return status+" "+reason == want
			})
			c.delete(t, definitions+"/"+w.name()).want(t, http.StatusOK)
			eventually(t, "the definition is gone", func() bool { return c.get(t, definitions+"/"+w.name()).Code == http.StatusNotFound })
		}
	}},
	{"group, scope and plural of an established definition can not be changed", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		for field, change := range map[string]func(spec map[string]any){
			"spec.group":        func(spec map[string]any) { spec["group"] = "other.example.com" },
			"spec.scope":        func(spec map[string]any) { spec["scope"] = "Cluster" },
			"spec.names.plural": func(spec map[string]any) { set(spec, "gadgets", "names", "plural") },
			"spec.names.kind":   func(spec map[string]any) { set(spec, "Gadget", "names", "kind") },
		} {
			w.redefine(t, change).invalid(t, field+": Invalid value: ",
				"field is immutable")
		}
	}},
	{"short names, categories and list kind can be changed", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		w.redefine(t, func(spec map[string]any) {
			set(spec, []any{"wx" + c.namespace}, "names", "shortNames")
			set(spec, []any{"all"}, "names", "categories")
		}).want(t, http.StatusOK)
		eventually(t, "discovery has the new names", func() bool {
			a := c.get(t, "/apis/"+w.group+"/v1")
			return strings.Contains(string(a.Body), `"shortNames":["wx`+c.namespace+`"]`) && strings.Contains(string(a.Body), `"categories":["all"]`)
		})
	}},
	{"a resource of scope Cluster has no namespaces, one of scope Namespaced needs them", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		c.post(t, c.global(w.group+"/v1", "widgets"), w.widget("a", "{}")).want(t, http.StatusNotFound)
		gadgets := w.definition(version("v1", anySpec))
		set(gadgets, "gadgets."+w.group, "metadata", "name")
		set(gadgets, "Cluster", "spec", "scope")
		set(gadgets, manifest("{plural: gadgets, kind: Gadget}"), "spec", "names")
		c.post(t, definitions, gadgets).want(t, http.StatusCreated)
		path := c.global(w.group+"/v1", "gadgets")
		eventually(t, "gadgets are served", func() bool { return c.get(t, path).Code == http.StatusOK })
		c.post(t, path, map[string]any{"apiVersion": w.group + "/v1", "kind": "Gadget",
			"metadata": map[string]any{"name": "a"}}).
			want(t, http.StatusCreated).has(t, "", "metadata", "namespace")
		c.get(t, c.path(w.group+"/v1", "gadgets")).want(t, http.StatusNotFound)
	}},
	{"a definition that is deleted takes its objects with it", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		w.create(t, "free", "{}").want(t, http.StatusCreated)
		w.create(t, "held", "metadata: {finalizers: [example.com/held]}").want(t, http.StatusCreated)
		c.delete(t, definitions+"/"+w.name()).want(t, http.StatusOK)
		eventually(t, "only what has a finalizer is left", func() bool { return slices.Equal(c.get(t, w.at("v1")).names(t), []string{"held"}) })
		c.get(t, definitions+"/"+w.name()).has(t, `["customresourcecleanup.apiextensions.k8s.io"]`, "metadata", "finalizers")
		if status, _ := w.condition(t, "Terminating"); status != "True" {
			t.Errorf("the condition Terminating is %q", status)
		}
		w.create(t, "late", "{}").refused(t, http.StatusForbidden, "Forbidden",
			"create not allowed while custom resource definition is terminating")
		if body := string(c.get(t, "/apis/"+w.group+"/v1").Body); !strings.Contains(body, `"verbs":["delete","deletecollection","get","list","watch"]`) {
			t.Errorf("discovery still has verbs that are refused:\n%s", body)
		}
		c.patch(t, mergePatch, w.at("v1", "held"), `{"metadata":{"finalizers":null}}`).want(t, http.StatusOK)
		eventually(t, "the definition is gone", func() bool { return c.get(t, definitions+"/"+w.name()).Code == http.StatusNotFound })
		eventually(t, "the resource is gone", func() bool { return c.get(t, w.at("v1")).Code == http.StatusNotFound })
		if again := c.define(t, version("v1", anySpec)); len(c.get(t, again.at("v1")).names(t)) != 0 {
			t.Error("objects have outlived their definition")
		}
	}},
	{"a definition that is wrong is refused with the field that is", func(t *testing.T, c *cluster) {
		w := c.custom()
		for _, bad := range []struct {
			change func(d map[string]any)
			parts  []string
		}{
			{func(d map[string]any) { set(d, "widgets", "metadata", "name") },
				[]string{`metadata.name: Invalid value: "widgets": must be spec.names.plural+"."+spec.group`}},
			{func(d map[string]any) { set(d, "Everywhere", "spec", "scope") },
				[]string{`spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"`}},
			{func(d map[string]any) { set(d, "Widget List", "spec", "names", "kind") },
				[]string{`spec.names.kind: Invalid value: "Widget List"`}},
			{func(d map[string]any) { set(d, "WIDGETS", "spec", "names", "plural") },
				[]string{`spec.names.plural: Invalid value: "WIDGETS"`}},
			{func(d map[string]any) { set(d, []any{"a b"}, "spec", "names", "shortNames") },
				[]string{`spec.names.shortNames[0]: Invalid value: "a b"`}},
			{func(d map[string]any) { set(d, []any{}, "spec", "versions") },
				[]string{"spec.versions: Invalid value: ", "must have exactly one version marked as storage version"}},
			{func(d map[string]any) {
				set(d, []any{version("v1", anySpec, "storage: true"), version("v2", anySpec, "storage: true")}, "spec",
					"versions")
			},
				[]string{"must have exactly one version marked as storage version"}},
			{func(d map[string]any) {
				set(d, []any{version("v1", anySpec, "storage: true"), version("v1", anySpec, "storage: false")}, "spec",
					"versions")
			},
				[]string{"must contain unique version names"}},
			{func(d map[string]any) { set(d, []any{version("V-1", anySpec, "storage: true")}, "spec", "versions") },
				[]string{`spec.versions[0].name: Invalid value: "V-1"`}},
			{func(d map[string]any) {
				set(d, []any{version("v1", anySpec, "{storage: true, schema: null}")}, "spec", "versions")
			},
				[]string{"spec.versions[0].schema.openAPIV3Schema: Required value"}},
			{func(d map[string]any) { set(d, true, "spec", "preserveUnknownFields") },
				[]string{`spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead`}},
			{func(d map[string]any) { set(d, manifest("strategy: Webhook"), "spec", "conversion") },
				[]string{"spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook"}},
			{func(d map[string]any) { set(d, manifest("strategy: Magic"), "spec", "conversion") },
				[]string{`spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook"`}},
			{func(d map[string]any) { set(d, strings.Repeat("g", 254)+".com", "spec", "group") },
				[]string{"spec.group: Invalid value: ", "must be no more than 253"}},
		} {
			d := w.definition(version("v1", anySpec))
			bad.change(d)
			c.post(t, definitions, d).invalid(t, bad.parts...)
		}
	}},
	{"a schema that is not structural is refused", func(t *testing.T, c *cluster) {
		w := c.custom()
		for properties, part := range map[string]string{
			"spec: {properties: {a: {type: string}}}":                                 "openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
			"spec: {type: object, properties: {a: {description: untyped}}}":           "properties[spec].properties[a].type: Required value: must not be empty for specified object fields",
			"spec: {type: array}":                                                     "properties[spec].items: Required value: must be specified",
			"spec: {type: string, anyOf: [{type: string}]}":                           "properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
			"spec: {type: object, uniqueItems: true}":                                 "properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
			"spec: {$ref: x}":                                                         `properties[spec].$ref: Forbidden: $ref is not supported`,
			"metadata: {type: object, properties: {labels: {type: object}}}":          "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
			"spec: {type: text}":                                                      `properties[spec].type: Unsupported value: "text"`,
			"spec: {type: string, pattern: '['}":                                      "properties[spec].pattern: Invalid value: ",
			"spec: {type: string, x-kubernetes-list-type: set}":                       "must be array if x-kubernetes-list-type is specified",
			"spec: {type: array, x-kubernetes-list-type: bag, items: {type: string}}": `x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map"`,
			"spec: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, properties: {k: {type: string}}}}": "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
			"spec: {type: string, default: 5}": "properties[spec].default: Invalid value: ",
		} {
			c.post(t, definitions, w.definition(version("v1", properties))).
				invalid(t, part)
		}
	}},
	{"a definition's status has a subresource, and its spec can not be written there", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		a := c.patch(t, mergePatch, definitions+"/"+w.name()+"/status",
			`{"spec":{"scope":"Cluster"},"status":{"storedVersions":["v1"]}}`)
		a.want(t, http.StatusOK).has(t, `"Namespaced"`, "spec", "scope")
	}},
}
