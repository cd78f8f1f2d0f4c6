package openapi

import (
	"fmt"
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
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

// v2Of returns the document of a version.
func (s *Service) v2Of(d definition, version string) (whole *spec.Swagger, err error) {
	for _, d := range s.inScopes(d) {
		doc, err := builder.BuildOpenAPIV2(d, version, options(true))
		if err != nil {
			return nil, fmt.Errorf("build OpenAPI v2 of %s: %w", d.Name, err)
		}
		for path, item := range doc.Paths.Paths {
			kept := leaveServed(s, d, []**spec.Operation{&item.Get, &item.Put, &item.Post, &item.Delete, &item.Patch}, func(o *spec.Operation) spec.Extensions { return o.Extensions })
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

// v3Of returns the document of a version.
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
