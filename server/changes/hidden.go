package changes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// Hidden are the values of a kind's objects that are secret: only a get of one object shows them. Lists, Tables, plans and diffs have their
// sizes. Nil hides nothing.
type Hidden struct {
	value   bool // it and everything in it
	encoded bool // in base64
	fields  map[string]*Hidden
	each    *Hidden // of the items of a list, or the other fields
}

var (
	// HiddenWhole hides everything, of objects of which nobody knows what is secret.
	HiddenWhole = &Hidden{value: true}

	applied = &Hidden{fields: map[string]*Hidden{"annotations": {fields: map[string]*Hidden{corev1.LastAppliedConfigAnnotation: HiddenWhole}}}}
	// secret is what Secrets hide.
	secret = &Hidden{fields: map[string]*Hidden{
		"data": {value: true, each: &Hidden{value: true, encoded: true}}, "stringData": HiddenWhole, "metadata": applied,
	}}
)

// HiddenInBuiltIn returns what the objects of a resource of Kubernetes hide.
func HiddenInBuiltIn(resource schema.GroupResource) *Hidden {
	if resource == (schema.GroupResource{Resource: "secrets"}) {
		return secret
	}
	return nil
}

// HiddenInSchemas returns what objects hide that have one of some OpenAPI schemas, in JSON: the fields of the format password.
func HiddenInSchemas(schemas ...map[string]any) *Hidden {
	var found *Hidden
	for _, s := range schemas {
		found = found.with(hiddenIn(s))
	}
	if found == nil || found.value {
		return found
	}
	return found.with(&Hidden{fields: map[string]*Hidden{"metadata": applied}})
}

func hiddenIn(schema map[string]any) *Hidden {
	if schema["format"] == "password" {
		return HiddenWhole
	}
	var found *Hidden
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if below, _ := property.(map[string]any); below != nil {
			found = found.withField(name, hiddenIn(below))
		}
	}
	for _, of := range []string{"items", "additionalProperties"} {
		if below, _ := schema[of].(map[string]any); below != nil {
			if each := hiddenIn(below); each != nil {
				found = found.with(&Hidden{each: each})
			}
		}
	}
	for _, of := range []string{"allOf", "anyOf", "oneOf"} {
		some, _ := schema[of].([]any)
		for _, one := range some {
			if below, _ := one.(map[string]any); below != nil {
				found = found.with(hiddenIn(below))
			}
		}
	}
	return found
}

// with returns what either hides.
func (h *Hidden) with(other *Hidden) *Hidden {
	switch {
	case h == nil || other != nil && other.value:
		return other
	case other == nil || h.value:
		return h
	}
	both := &Hidden{each: h.each.with(other.each)}
	for _, one := range []*Hidden{h, other} {
		for name, field := range one.fields {
			both = both.withField(name, field)
		}
	}
	return both
}

// withField returns h, or a copy of it, that hides what a field hides besides.
func (h *Hidden) withField(name string, field *Hidden) *Hidden {
	if field == nil {
		return h
	}
	copied := &Hidden{fields: map[string]*Hidden{}}
	if h != nil {
		copied.each = h.each
		for other, f := range h.fields {
			copied.fields[other] = f
		}
	}
	copied.fields[name] = copied.fields[name].with(field)
	return copied
}

func (h *Hidden) field(name string) *Hidden {
	if found := h.fields[name]; found != nil {
		return found
	}
	return h.each
}

// Of returns what the field with a path of package fieldpath hides.
func (h *Hidden) Of(path string) *Hidden {
	for _, step := range fieldpath.Steps(path) {
		switch {
		case h == nil || h.value && h.each == nil:
			return h
		case strings.HasPrefix(step, "."):
			h = h.field(step[1:])
		case strings.HasPrefix(step, `["`):
			name, err := strconv.Unquote(step[1 : len(step)-1])
			if err != nil {
				return HiddenWhole
			}
			h = h.field(name)
		default:
			h = h.each
		}
	}
	return h
}

// Hides reports whether a value, as decoded from JSON, is secret or has something secret in it.
func (h *Hidden) Hides(value any) bool {
	if h == nil || value == nil {
		return false
	}
	if h.value {
		return true
	}
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if h.field(name).Hides(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, h.each.Hides)
	}
	return false
}

// Size returns the size of a value in bytes: of a text itself, without its encoding, else of the JSON.
func (h *Hidden) Size(value any) int {
	if text, ok := value.(string); ok {
		if h != nil && h.encoded {
			if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
				return len(raw)
			}
		}
		return len(text)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return 0
	}
	return len(text)
}

func (h *Hidden) sizeOf(value any) *int {
	if value == nil {
		return nil
	}
	return ptr.To(h.Size(value))
}

// Replace replaces each secret value in an object, as decoded from JSON, by what a function returns for it.
func (h *Hidden) Replace(object any, by func(h *Hidden, path string, value any) any) any {
	return h.replace("", object, by)
}

func (h *Hidden) replace(path string, value any, by func(h *Hidden, path string, value any) any) any {
	fields, isMap := value.(map[string]any)
	switch {
	case !h.Hides(value):
	case isMap && (!h.value || h.each != nil):
		for name, field := range fields {
			fields[name] = h.field(name).replace(path+fieldpath.Field(name), field, by)
		}
	case h.value:
		return by(h, path, value)
	default:
		for i, item := range value.([]any) {
			value.([]any)[i] = h.each.replace(path+"["+strconv.Itoa(i)+"]", item, by)
		}
	}
	return value
}

// HideIn replaces the secret values in a version of an object, or in two, by their sizes: those that hidden hides in each. Values that differ
// between the two still do.
func HideIn(hidden []*Hidden, versions []map[string]any) {
	values := make([]map[string]any, len(versions))
	for i, version := range versions {
		values[i] = map[string]any{}
		hidden[i].Replace(version, func(_ *Hidden, path string, value any) any {
			values[i][path] = value
			return value
		})
	}
	for i, version := range versions {
		hidden[i].Replace(version, func(h *Hidden, path string, value any) any {
			if other, both := values[len(values)-1-i][path]; both && !reflect.DeepEqual(other, value) {
				return fmt.Sprintf("(%d bytes, %s)", h.Size(value), [2]string{"before", "after"}[i])
			}
			return Sized(h.Size(value))
		})
	}
}
