package openapi

import (
	"fmt"
	"maps"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sqube/sqube/server/openapi/internal/archive"
	"github.com/sqube/sqube/server/openapi/internal/swagger"
)

// overlap reports whether documents of a definition have paths or definitions that a built-in part has too, besides those
// that every one refers to. Few have: names of definitions are made of the group's, and no built-in group has a custom
// resource of the name of a built-in one unless someone means it.
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

// besideBuiltin returns what the documents add to the built-in ones, as kube-apiserver merges them: paths that there are
// already are left out, with the definitions that nothing else needs, and definitions that there are already, but not alike,
// get other names.
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

// without returns what is in all and not in known.
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

// readV2 reads a compressed document in JSON.
func readV2(members [][]byte) (*spec.Swagger, error) {
	text, err := archive.Text(members)
	if err != nil {
		return nil, err
	}
	document := &spec.Swagger{}
	if err := document.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("read OpenAPI v2: %w", err)
	}
	return document, nil
}
