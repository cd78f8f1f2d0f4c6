package openapi

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sqube/sqube/server/openapi/internal/archive"
	"github.com/sqube/sqube/server/openapi/internal/swagger"
)

// Serves reports whether an action, such as list or post, is one of a resource in a scope.
type Serves func(scope apiextensionsv1.ResourceScope, action string) bool

// inScopes returns a definition as it is, or, if not all of its operations are served, one for each scope.
func (s *Service) inScopes(d definition) []definition {
	if s.partly[d.Name] == nil {
		return []definition{d}
	}
	cluster, namespaced := *d, *d
	cluster.Spec.Scope, namespaced.Spec.Scope = apiextensionsv1.ClusterScoped, apiextensionsv1.NamespaceScoped
	return []definition{&cluster, &namespaced}
}

func (s *Service) v2Of(d definition, version string) (whole *spec.Swagger, err error) {
	for _, d := range s.inScopes(d) {
		doc, err := builder.BuildOpenAPIV2(d, version, options(true))
		if err != nil {
			return nil, fmt.Errorf("build OpenAPI v2 of %s: %w", d.Name, err)
		}
		for path, item := range doc.Paths.Paths {
			kept := leaveServed(s, d, []**spec.Operation{&item.Get, &item.Put, &item.Post, &item.Delete, &item.Patch}, func(o *spec.Operation) spec.Extensions { return o.Extensions })
			if whole != nil { // in all namespaces, too
				item.Delete = cmp.Or(item.Delete, whole.Paths.Paths[path].Delete)
			}
			if doc.Paths.Paths[path] = item; !kept {
				delete(doc.Paths.Paths, path)
			}
		}
		if whole == nil {
			whole = doc
			continue
		}
		maps.Copy(whole.Paths.Paths, doc.Paths.Paths) // which need the same schemas
	}
	return whole, nil
}

func (s *Service) v3Of(d definition, version string) (whole *spec3.OpenAPI, err error) {
	for _, d := range s.inScopes(d) {
		doc, err := builder.BuildOpenAPIV3(d, version, options(false))
		if err != nil {
			return nil, fmt.Errorf("build OpenAPI v3 of %s: %w", d.Name, err)
		}
		for path, item := range doc.Paths.Paths {
			if !leaveServed(s, d, []**spec3.Operation{&item.Get, &item.Put, &item.Post, &item.Delete, &item.Patch}, func(o *spec3.Operation) spec.Extensions { return o.Extensions }) {
				delete(doc.Paths.Paths, path)
			}
			if whole != nil && whole.Paths.Paths[path] != nil { // in all namespaces, too
				item.Delete = cmp.Or(item.Delete, whole.Paths.Paths[path].Delete)
			}
		}
		if whole == nil {
			whole = doc
			continue
		}
		maps.Copy(whole.Paths.Paths, doc.Paths.Paths) // which need the same schemas
	}
	return whole, nil
}

// leaveServed removes the operations of a path that are not served, and reports whether there are others.
func leaveServed[O any](s *Service, d definition, operations []**O, extensions func(*O) spec.Extensions) (kept bool) {
	serves := s.partly[d.Name]
	for _, o := range operations {
		if *o == nil {
			continue
		}
		if action, _ := extensions(*o).GetString("x-kubernetes-action"); serves != nil && !serves(d.Spec.Scope, action) {
			*o = nil
		} else {
			kept = true
		}
	}
	return kept
}

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
