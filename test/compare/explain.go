package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/sqube/sqube/test/compare/differences"
)

// explain returns the reason why two responses differ, if they are the same without the fields that it names, and "" otherwise.
func explain(all []*differences.Difference, script, title string, want, got answer) string {
	for _, d := range all {
		if !d.Matches(script+"/"+title) || want.without(d.Fields, -1).String() != got.without(d.Fields, -1).String() {
			continue
		}
		for i := range d.Fields {
			if want.without(d.Fields, i).String() != got.without(d.Fields, i).String() {
				d.Fields[i].Used = true
			}
		}
		return d.Reason
	}
	return ""
}

// without returns the response without fields, except the one with the index keep.
func (a answer) without(fields []differences.Field, keep int) answer {
	for i, f := range fields {
		header, isHeader := strings.CutSuffix(f.Name, ":")
		switch {
		case i == keep:
		case f.Name == "HTTP":
			a.code = 0
		case f.Name == "text":
			a.text = ""
		case f.Name == "body":
			a.text, a.documents = "", nil
		case isHeader:
			a.headers = slices.DeleteFunc(slices.Clone(a.headers), func(line string) bool {
				return line == header || strings.HasPrefix(line, header+": ")
			})
		default:
			a.documents = cut(a.documents, strings.Split(f.Name, ".")).([]any)
		}
	}
	return a
}

// cut returns a value without the field at a path.
func cut(value any, path []string) any {
	switch v := value.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cut(v[i], path)
		}
		return out
	case map[string]any:
		inner, ok := v[path[0]]
		if !ok {
			return v
		}
		out := maps.Clone(v)
		if len(path) == 1 {
			delete(out, path[0])
		} else {
			out[path[0]] = cut(inner, path[1:])
		}
		return out
	}
	return value
}
