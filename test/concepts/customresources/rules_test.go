package customresources

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

var customRules = []kit.Promise{
	{Statement: "an object that violates a rule is rejected with the rule's path, or its message", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  x-kubernetes-validations:
  - {rule: "!has(self.min) || !has(self.max) || self.min <= self.max"}
  - {rule: "!has(self.min) || self.min > 0", message: the minimum is positive}
  - {rule: "!has(self.tier) || self.tier != 'tin'", messageExpression: "self.tier + ' is not enough'"}
  - {rule: "!has(self.tier) || self.tier != 'gold'", reason: FieldValueForbidden, fieldPath: .tier, message: no gold}
  - {rule: "!has(self.divisor) || 10 / self.divisor > 0", message: divides}
  properties:
    min: {type: integer}
    max: {type: integer}
    tier: {type: string, maxLength: 10}
    divisor: {type: integer}
    names:
      type: array
      maxItems: 5
      items: {type: string, maxLength: 10, x-kubernetes-validations: [{rule: "self.startsWith('x')", message: starts with x}]}
    hosts:
      type: object
      maxProperties: 5
      additionalProperties: {type: string, maxLength: 20, x-kubernetes-validations: [{rule: "self.endsWith('.com')"}]}
    cpu: {type: string, maxLength: 10, x-kubernetes-validations: [{rule: "isQuantity(self) && quantity(self).isLessThan(quantity('2'))", message: less than 2}]}
    link: {type: string, maxLength: 50, x-kubernetes-validations: [{rule: "isURL(self) && url(self).getScheme() == 'https'", message: https}]}
    net: {type: string, maxLength: 20, x-kubernetes-validations: [{rule: "isCIDR(self) && cidr(self).containsIP('10.0.0.1')", message: has 10.0.0.1}]}
    label: {type: string, maxLength: 99, x-kubernetes-validations: [{rule: "!format.dns1123Label().validate(self).hasValue()", message: a label}]}
    port: {x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: "type(self) == int ? self < 10 : self == 'http'", message: below 10 or http}]}
    when: {type: string, format: date-time, x-kubernetes-validations: [{rule: "self.getFullYear() >= 2000", message: this century}]}`))
		for spec, part := range map[string]string{
			"{min: 5, max: 4}":               `spec: Invalid value: failed rule: !has(self.min) || !has(self.max) || self.min <= self.max`,
			"{min: 0}":                       "the minimum is positive",
			"{tier: tin}":                    "tin is not enough",
			"{tier: gold}":                   "spec.tier: Forbidden: no gold",
			"{divisor: 0}":                   "divides",
			"{names: [x, z]}":                `spec.names[1]: Invalid value: "z": starts with x`,
			"{hosts: {a: b.de}}":             "spec.hosts[a]: Invalid value: ",
			"{cpu: '3'}":                     "less than 2",
			"{link: 'http://a'}":             "https",
			"{net: 10.1.0.0/16}":             "has 10.0.0.1",
			"{label: A_}":                    "a label",
			"{port: 10}":                     "below 10 or http",
			"{port: ftp}":                    "below 10 or http",
			"{when: '1999-01-01T00:00:00Z'}": "this century",
		} {
			w.Create(t, "a", "spec: "+spec).Invalid(t, part)
		}
		w.Create(t, "a", `spec: {min: 1, max: 2, tier: silver, divisor: 2, names: [x], hosts: {a: b.com}, cpu: 1500m, link: "https://a",
			net: 10.0.0.0/16, label: a, port: http, when: "2020-01-01T00:00:00Z"}`).Created(t)
	}},
	{Statement: "the reason of a rule is that of the cause", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  properties: {a: {type: string}}
  x-kubernetes-validations:
  - {rule: "self.a != 'r'", reason: FieldValueRequired, message: r}
  - {rule: "self.a != 'd'", reason: FieldValueDuplicate, message: d}
  - {rule: "self.a != 'f'", reason: FieldValueForbidden, message: f}
  - {rule: "self.a != 'i'", reason: FieldValueInvalid, message: i}`))
		for value, reason := range map[string]string{"r": "FieldValueRequired", "d": "FieldValueDuplicate", "f": "FieldValueForbidden", "i": "FieldValueInvalid"} {
			a := w.Create(t, "a", "spec: {a: "+value+"}").Invalid(t)
			if !strings.Contains(string(a.Body), `"reason":"`+reason+`"`) {
				t.Errorf("%s: the response is %s", reason, a.Body)
			}
		}
	}},
	{Statement: "a rule with oldSelf validates changes", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  properties:
    fixed: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: does not change}]}
    grows: {type: integer, x-kubernetes-validations: [{rule: self >= oldSelf, message: does not shrink}]}
    once: {type: string, x-kubernetes-validations: [{rule: "oldSelf.hasValue() || self == 'first'", optionalOldSelf: true, message: first}]}
    items:
      type: array
      x-kubernetes-list-type: map
      x-kubernetes-list-map-keys: [k]
      maxItems: 5
      items: {type: object, required: [k], properties: {k: {type: string, maxLength: 5}, v: {type: string, maxLength: 5, x-kubernetes-validations: [{rule: self == oldSelf, message: items stay}]}}}`))
		w.Create(t, "b", "spec: {once: second}").Invalid(t, "spec.once: ",
			"first")
		w.Create(t, "a", "spec: {fixed: x, grows: 1, once: first, items: [{k: a, v: x}]}").Created(t)
		for patch, part := range map[string]string{
			`{"spec":{"fixed":"w"}}`: "spec.fixed: Invalid value: \"w\": does not change",
			`{"spec":{"grows":0}}`:   "does not shrink",
			`{"spec":{"items":[{"k":"b","v":"z"},{"k":"a","v":"z"}]}}`: "spec.items[1].v: Invalid value: \"z\": items stay",
		} {
			c.Patch(t, kit.MergePatch, w.At("v1", "a"), patch).Invalid(t, part)
		}
		c.Patch(t, kit.MergePatch, w.At("v1", "a"), `{"spec":{"fixed":null,"grows":2,"once":"second","items":[{"k":"b","v":"z"}]}}`).OK(t)
	}},
	{Statement: "rules at the root have access to apiVersion, kind and the name", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "", `schema: {openAPIV3Schema: {type: object, x-kubernetes-validations: [
			{rule: "self.metadata.name == self.kind.lowerAscii() && self.apiVersion.endsWith('/v1')", message: named by its kind}]}}`))
		w.Create(t, "gadget", "{}").Invalid(t, "named by its kind")
		w.Create(t, "widget", "{}").Created(t)
	}},
	{Statement: "a change is not rejected for what was invalid before", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "spec: {type: object, properties: {a: {type: string}, b: {type: integer}, c: {type: string}}}"))
		w.Create(t, "old", "spec: {a: long, b: 5}").Created(t)
		w.Redefine(t, func(spec map[string]any) {
			spec["versions"] = []any{kit.CRDVersion("v1", `spec: {type: object, properties: {a: {type: string, maxLength: 2},
				b: {type: integer, x-kubernetes-validations: [{rule: self < 5, message: below 5}]}, c: {type: string}}}`, "storage: true")}
		}).OK(t)
		harness.Eventually(t, "the new schema is in effect", func() bool { return w.Create(t, "new", "spec: {a: long}").Code == http.StatusUnprocessableEntity })
		c.Patch(t, kit.MergePatch, w.At("v1", "old"), `{"spec":{"c":"x"}}`).OK(t)
		c.Patch(t, kit.MergePatch, w.At("v1", "old"), `{"spec":{"a":"longer"}}`).Invalid(t, "spec.a: Too long")
		c.Patch(t, kit.MergePatch, w.At("v1", "old"), `{"spec":{"b":6}}`).Invalid(t, "below 5")
		c.Patch(t, kit.MergePatch, w.At("v1", "old"), `{"spec":{"b":4}}`).OK(t)
	}},
	{Statement: "a definition with an invalid or too expensive rule is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.CustomResource()
		for properties, part := range map[string]string{
			"spec: {type: object, x-kubernetes-validations: [{rule: 'self =='}]}":                                                "properties[spec].x-kubernetes-validations[0].rule: Invalid value: ",
			"spec: {type: object, x-kubernetes-validations: [{rule: self.missing > 1}]}":                                         "undefined field 'missing'",
			"spec: {type: object, x-kubernetes-validations: [{rule: '5'}]}":                                                      "must evaluate to a bool",
			"spec: {type: object, x-kubernetes-validations: [{rule: ''}]}":                                                       "x-kubernetes-validations[0].rule: Required value: rule is not specified",
			"spec: {type: object, x-kubernetes-validations: [{rule: 'true', messageExpression: '5'}]}":                           "messageExpression: Invalid value: ",
			"spec: {type: object, x-kubernetes-validations: [{rule: 'true', reason: Whim}]}":                                     `x-kubernetes-validations[0].reason: Unsupported value: "Whim"`,
			"spec: {type: object, x-kubernetes-validations: [{rule: 'true', fieldPath: .missing}]}":                              "x-kubernetes-validations[0].fieldPath: Invalid value: ",
			"spec: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: 'self.all(a, self.all(b, a == b))'}]}": "estimated rule cost exceeds budget by factor of",
			"spec: {type: array, items: {type: string, x-kubernetes-validations: [{rule: self == oldSelf}]}}":                    "oldSelf cannot be used on the uncorrelatable portion of the schema",
		} {
			c.Post(t, kit.Definitions, w.Definition(kit.CRDVersion("v1", properties))).Invalid(t, part)
		}
	}},
}
