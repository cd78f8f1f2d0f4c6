package openapi

import (
	"maps"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sqube/sqube/server/openapi/internal/archive"
	"github.com/sqube/sqube/server/openapi/internal/swagger"
)

// builtinNames returns the names of all paths, definitions and parameters of built-in parts that are served.
func (s *Service) builtinNames() (map[string]bool, error) {
	names := map[string]bool{}
	for _, f := range s.builtin.v2 {
		text, err := archive.Text([][]byte{f.Names.In(data)})
		if err != nil {
			return nil, err
		}
		for name := range strings.SplitSeq(string(text), "\n") {
			names[name] = true
		}
	}
	return names, nil
}

// overlap reports whether documents of a definition have paths or definitions that a built-in part has too, except those that all
// definitions refer to. Few do: names of definitions contain the group, and custom resources hardly get the name of a built-in
// resource by accident.
func overlap(docs []*spec.Swagger, known map[string]bool) bool {
	for _, doc := range docs {
		for name := range doc.Definitions {
			if known[name] && !shared(swagger.Definitions, name) {
				return true
			}
		}
		if doc.Paths == nil {
			continue
		}
		for path := range doc.Paths.Paths {
			if known[path] {
				return true
			}
		}
	}
	return false
}

// besideBuiltin returns the documents' additions to the built-in ones, merged like in kube-apiserver: existing paths are omitted,
// with definitions that only they need, and definitions that differ from an existing one of the same name are renamed.
func (s *Service) besideBuiltin(docs []*spec.Swagger) ([]*spec.Swagger, error) {
	static, err := get(s.rendered, "v2 built-in", s.builtinV2)
	if err != nil {
		return nil, err
	}
	merged, err := builder.MergeSpecs(static, docs...)
	if err != nil {
		return nil, err
	}
	return []*spec.Swagger{{SwaggerProps: spec.SwaggerProps{
		Paths:       &spec.Paths{Paths: without(merged.Paths.Paths, static.Paths.Paths)},
		Definitions: without(merged.Definitions, static.Definitions),
		Parameters:  without(merged.Parameters, static.Parameters),
	}}}, nil
}

// without returns the entries of all whose names are not in known.
func without[V any](all, known map[string]V) map[string]V {
	added := maps.Clone(all)
	maps.DeleteFunc(added, func(name string, _ V) bool { _, ok := known[name]; return ok })
	return added
}

// builtinV2 is the document without custom resources.
func (s *Service) builtinV2() (*spec.Swagger, error) {
	text, err := s.buildV2(nil, asJSON)
	if err != nil {
		return nil, err
	}
	return readV2(text)
}
