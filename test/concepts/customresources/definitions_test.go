// Package customresources tests sqube against the documentation of custom resources, from their definitions to their
// conversion.
package customresources

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Custom resources: one server for all subjects, each of which has its own file.
func TestCustomResources(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(
		customDefinitions, customSchemas, customDefaults, customRules, customServing, customVersions, customConversion, fieldDefinitions,
	)...)
}

var customDefinitions = []kit.Promise{
	{Statement: "creating a definition returns 201, or 409 if it exists", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		c.Post(t, kit.Definitions, w.Definition(kit.CRDVersion("v1", kit.AnySpec))).Refused(t, http.StatusConflict, "AlreadyExists")
	}},
	{Statement: "a definition with the name of a built-in resource does not affect its objects, not even when deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		policies, class := c.Path("networking.k8s.io/v1", "networkpolicies"), "/apis/networking.k8s.io/v1/ingressclasses"
		policy := c.Post(t, policies, kit.Manifest("{metadata: {name: a}, spec: {podSelector: {}}}")).Created(t)
		ingress := c.Post(t, class, kit.Manifest("{metadata: {name: %s}, spec: {controller: example.com/c}}", c.Namespace)).Created(t)
		c.DeleteAtEnd(t, class+"/"+c.Namespace)
		for resource, scope := range map[string]string{"networkpolicies": "Namespaced", "ingressclasses": "Cluster"} {
			definition := kit.Manifest(`{metadata: {name: %[1]s.networking.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}},
				spec: {group: networking.k8s.io, scope: %[2]s, names: {plural: %[1]s, singular: fake%[1]s, kind: Fake%[1]s},
				versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: %[3]s}}]}}`, resource, scope, kit.AnySchema)
			name := c.Post(t, kit.Definitions, definition).Created(t).Text(t, "metadata", "name")
			harness.Eventually(t, name+" is established", func() bool {
				status, _ := kit.Condition(t, c.Get(t, kit.Definitions+"/"+name), "Established")
				return status == "True"
			})
			c.Delete(t, kit.Definitions+"/"+name).OK(t)
			harness.Eventually(t, name+" is deleted", func() bool { return c.Get(t, kit.Definitions+"/"+name).Code == http.StatusNotFound })
		}
		for path, before := range map[string]kit.Answer{policies + "/a": policy, class + "/" + c.Namespace: ingress} {
			if after := c.Get(t, path).OK(t); after.ResourceVersion(t) != before.ResourceVersion(t) {
				t.Errorf("%s has changed: %s", path, after.Body)
			}
		}
	}},
	{Statement: "a definition is established when its names are accepted, and its resource is served from then on", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.CustomResource()
		c.Get(t, w.At("v1")).Want(t, http.StatusNotFound)
		w = c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		d := c.Get(t, kit.Definitions+"/"+w.Name()).OK(t).
			HasField(t, `{"kind":"Widget","listKind":"WidgetList","plural":"widgets","singular":"widget"}`, "status",
				"acceptedNames").
			HasField(t, `["v1"]`, "status", "storedVersions")
		for kind, want := range map[string]string{"NamesAccepted": "True NoConflicts", "Established": "True InitialNamesAccepted", "NonStructuralSchema": " "} {
			if status, reason := kit.Condition(t, d, kind); status+" "+reason != want {
				t.Errorf("the condition %s is %s %s", kind, status, reason)
			}
		}
		w.Create(t, "a", "{}").Created(t)
		if list := c.Get(t, w.At("v1")).OK(t); list.Text(t, "kind") != "WidgetList" || len(list.Names(t)) != 1 {
			t.Errorf("the list is %s", list.Body)
		}
	}},
	{Statement: "singular and listKind default from kind", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.CustomResource()
		d := w.Definition(kit.CRDVersion("v1", kit.AnySpec))
		kit.SetField(d, kit.Manifest("{plural: widgets, kind: Widget}"), "spec", "names")
		c.Post(t, kit.Definitions, d).Created(t).HasField(t, `"widget"`, "spec", "names", "singular").
			HasField(t, `"WidgetList"`, "spec", "names", "listKind")
	}},
	{Statement: "a definition whose names are taken waits until they are free", Proof: func(t *testing.T, c *kit.Cluster) {
		first := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		d := first.Definition(kit.CRDVersion("v1", kit.AnySpec))
		name := "gadgets." + first.Group
		kit.SetField(d, name, "metadata", "name")
		kit.SetField(d, kit.Manifest("{plural: gadgets, singular: gadget, shortNames: [gd], kind: Widget}"), "spec", "names")
		c.Post(t, kit.Definitions, d).Created(t)
		harness.Eventually(t, "the names are not accepted", func() bool {
			status, reason := kit.Condition(t, c.Get(t, kit.Definitions+"/"+name), "NamesAccepted")
			return status == "False" && reason == "ListKindConflict"
		})
		if status, reason := kit.Condition(t, c.Get(t, kit.Definitions+"/"+name), "Established"); status != "False" || reason != "NotAccepted" {
			t.Errorf("the condition Established is %s %s", status, reason)
		}
		c.Get(t, c.Path(first.Group+"/v1", "gadgets")).Want(t, http.StatusNotFound)
		c.Delete(t, kit.Definitions+"/"+first.Name()).OK(t)
		harness.Eventually(t, "the second definition is served", func() bool { return c.Get(t, c.Path(first.Group+"/v1", "gadgets")).Code == http.StatusOK })
	}},
	{Statement: "a definition in a protected group needs a link to its approval", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.CustomResource()
		w.Group = c.Namespace + ".k8s.io"
		d := w.Definition(kit.CRDVersion("v1", kit.AnySpec))
		c.Post(t, kit.Definitions, d).Invalid(t, "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation")
		approval := "metadata: {annotations: {api-approved.kubernetes.io: %s}}"
		for value, want := range map[string]string{"unapproved, for a test": "False UnapprovedAnnotation", "https://example.com/approval": "True ApprovedAnnotation"} {
			kit.SetField(d, value, "metadata", "annotations", "api-approved.kubernetes.io")
			c.Post(t, kit.Definitions, d).Created(t)
			harness.Eventually(t, approval+" is checked", func() bool {
				status, reason := w.Condition(t, "KubernetesAPIApprovalPolicyConformant")
				return status+" "+reason == want
			})
			c.Delete(t, kit.Definitions+"/"+w.Name()).OK(t)
			harness.Eventually(t, "the definition is deleted", func() bool { return c.Get(t, kit.Definitions+"/"+w.Name()).Code == http.StatusNotFound })
		}
	}},
	{Statement: "group, scope and plural of an established definition can't be changed", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		for field, change := range map[string]func(spec map[string]any){
			"spec.group":        func(spec map[string]any) { spec["group"] = "other.example.com" },
			"spec.scope":        func(spec map[string]any) { spec["scope"] = "Cluster" },
			"spec.names.plural": func(spec map[string]any) { kit.SetField(spec, "gadgets", "names", "plural") },
			"spec.names.kind":   func(spec map[string]any) { kit.SetField(spec, "Gadget", "names", "kind") },
		} {
			w.Redefine(t, change).Invalid(t, field+": Invalid value: ",
				"field is immutable")
		}
	}},
	{Statement: "short names, categories and list kind can be changed", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		w.Redefine(t, func(spec map[string]any) {
			kit.SetField(spec, []any{"wx" + c.Namespace}, "names", "shortNames")
			kit.SetField(spec, []any{"all"}, "names", "categories")
		}).OK(t)
		harness.Eventually(t, "discovery has the new names", func() bool {
			a := c.Get(t, "/apis/"+w.Group+"/v1")
			return strings.Contains(string(a.Body), `"shortNames":["wx`+c.Namespace+`"]`) && strings.Contains(string(a.Body), `"categories":["all"]`)
		})
	}},
	{Statement: "a resource of scope Cluster has no namespaces, one of scope Namespaced needs them", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		c.Post(t, c.ClusterPath(w.Group+"/v1", "widgets"), w.Widget("a", "{}")).Want(t, http.StatusNotFound)
		gadgets := w.Definition(kit.CRDVersion("v1", kit.AnySpec))
		kit.SetField(gadgets, "gadgets."+w.Group, "metadata", "name")
		kit.SetField(gadgets, "Cluster", "spec", "scope")
		kit.SetField(gadgets, kit.Manifest("{plural: gadgets, kind: Gadget}"), "spec", "names")
		c.Post(t, kit.Definitions, gadgets).Created(t)
		path := c.ClusterPath(w.Group+"/v1", "gadgets")
		harness.Eventually(t, "gadgets are served", func() bool { return c.Get(t, path).Code == http.StatusOK })
		c.Post(t, path, map[string]any{"apiVersion": w.Group + "/v1", "kind": "Gadget",
			"metadata": map[string]any{"name": "a"}}).Created(t).HasField(t, "", "metadata", "namespace")
		c.Get(t, c.Path(w.Group+"/v1", "gadgets")).Want(t, http.StatusNotFound)
	}},
	{Statement: "deleting a definition deletes its objects, and it is served until the last is gone", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		w.Create(t, "free", "{}").Created(t)
		w.Create(t, "held", "metadata: {finalizers: [example.com/held]}").Created(t)
		c.Delete(t, kit.Definitions+"/"+w.Name()).OK(t)
		harness.Eventually(t, "only the object with a finalizer remains", func() bool { return slices.Equal(c.Get(t, w.At("v1")).Names(t), []string{"held"}) })
		c.Get(t, kit.Definitions+"/"+w.Name()).HasField(t, `["customresourcecleanup.apiextensions.k8s.io"]`, "metadata", "finalizers")
		if status, _ := w.Condition(t, "Terminating"); status != "True" {
			t.Errorf("the condition Terminating is %q", status)
		}
		// The handler hears of the condition a moment after it is there.
		harness.Eventually(t, "discovery has only the verbs that are allowed", func() bool {
			return strings.Contains(string(c.Get(t, "/apis/"+w.Group+"/v1").Body), `"verbs":["delete","deletecollection","get","list","watch"]`)
		})
		w.Create(t, "late", "{}").Forbidden(t,
			"create not allowed while custom resource definition is terminating")
		c.Patch(t, kit.MergePatch, w.At("v1", "held"), `{"metadata":{"finalizers":null}}`).OK(t)
		harness.Eventually(t, "the definition is deleted", func() bool { return c.Get(t, kit.Definitions+"/"+w.Name()).Code == http.StatusNotFound })
		harness.Eventually(t, "the resource is deleted", func() bool { return c.Get(t, w.At("v1")).Code == http.StatusNotFound })
		if again := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec)); len(c.Get(t, again.At("v1")).Names(t)) != 0 {
			t.Error("objects have outlived their definition")
		}
	}},
	{Statement: "an invalid definition is rejected with the invalid field", Proof: func(t *testing.T, c *kit.Cluster) {
		versions := func(first, second string) []any {
			return []any{kit.CRDVersion(first, kit.AnySpec, "storage: true"), kit.CRDVersion(second, kit.AnySpec, "storage: "+strconv.FormatBool(first != second))}
		}
		for _, bad := range []struct {
			message string
			value   any
			field   []string
		}{
			{`spec.names.kind: Invalid value: "Widget List"`, "Widget List", []string{"names", "kind"}},
			{`spec.names.plural: Invalid value: "WIDGETS"`, "WIDGETS", []string{"names", "plural"}},
			{`spec.names.shortNames[0]: Invalid value: "a b"`, []any{"a b"}, []string{"names", "shortNames"}},
			{"must have exactly one version marked as storage version", []any{}, []string{"versions"}},
			{"must have exactly one version marked as storage version", versions("v1", "v2"), []string{"versions"}},
			{"must contain unique version names", versions("v1", "v1"), []string{"versions"}},
			{"spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
				true, []string{"preserveUnknownFields"}},
			{`spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook"`, "Magic", []string{"conversion", "strategy"}},
			{"must be no more than 253", strings.Repeat("g", 254) + ".com", []string{"group"}},
		} {
			d := c.CustomResource().Definition(kit.CRDVersion("v1", kit.AnySpec))
			kit.SetField(d, bad.value, append([]string{"spec"}, bad.field...)...)
			c.Post(t, kit.Definitions, d).Invalid(t, bad.message)
		}
	}},
	{Statement: "a non-structural schema is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.CustomResource()
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
			c.Post(t, kit.Definitions, w.Definition(kit.CRDVersion("v1", properties))).Invalid(t, part)
		}
	}},
	{Statement: "a definition has a status subresource, and its spec can't be written there", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		a := c.Patch(t, kit.MergePatch, kit.Definitions+"/"+w.Name()+"/status",
			`{"spec":{"scope":"Cluster"},"status":{"storedVersions":["v1"]}}`)
		a.OK(t).HasField(t, `"Namespaced"`, "spec", "scope")
	}},
}
