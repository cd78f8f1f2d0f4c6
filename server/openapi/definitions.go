package openapi

import (
	_ "embed" // for the archive
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apiextensionsfeatures "k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/server/openapi/internal/archive"
)

// definition is a CustomResourceDefinition to publish.
type definition = *apiextensionsv1.CustomResourceDefinition

// established lists the definitions that are served, sorted by name.
func (s *Service) established() ([]definition, error) {
	if s.definitions == nil {
		return nil, nil
	}
	all, err := s.definitions.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list custom resource definitions: %w", err)
	}
	var served []definition
	for _, d := range all {
		if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			served = append(served, d)
		}
	}
	slices.SortFunc(served, func(a, b definition) int { return strings.Compare(a.Name, b.Name) })
	return served, nil
}

// byPath groups definitions by the paths of the OpenAPI v3 documents they appear in, one for each served version.
func byPath(definitions []definition) map[string][]definition {
	paths := map[string][]definition{}
	for _, d := range definitions {
		for _, v := range d.Spec.Versions {
			if v.Served {
				path := "apis/" + d.Spec.Group + "/" + v.Name
				paths[path] = append(paths[path], d)
			}
		}
	}
	return paths
}

// identity identifies the content of a definition: documents depend only on its spec, which changes only together with its
// generation.
func identity(d definition) string {
	return fmt.Sprintf("%s %s %d", d.Name, d.UID, d.Generation)
}

// etag returns the ETag of a document made from the definitions.
func (s *Service) etag(definitions []definition) string {
	parts := []string{s.seed}
	for _, d := range definitions {
		parts = append(parts, identity(d))
	}
	return hash(parts...)
}

// options are upstream's for published documents.
func options(v2 bool) builder.Options {
	return builder.Options{
		V2:                      v2,
		IncludeSelectableFields: utilfeature.DefaultFeatureGate.Enabled(apiextensionsfeatures.CustomResourceFieldSelectors),
	}
}

//go:embed builtin/documents.bin
var data []byte

//go:embed builtin/index.json
var index []byte

// builtin is the part of the archive that is served.
type builtin struct {
	release string
	v3      map[string]archive.Document // by path
	head    archive.Swagger             // without fragments
	v2      []archive.Fragment
}

// loadBuiltin reads the archive's index and keeps the entries of group versions that are served.
func loadBuiltin(served []schema.GroupVersion) (*builtin, error) {
	var i archive.Index
	if err := json.Unmarshal(index, &i); err != nil {
		return nil, fmt.Errorf("read the embedded OpenAPI index (run go generate ./server/openapi): %w", err)
	}
	on := map[string]bool{}
	for _, gv := range served {
		on[gv.String()] = true
	}
	b := &builtin{release: i.Release, v3: map[string]archive.Document{}, head: i.V2}
	b.head.Fragments = nil
	for _, d := range i.V3 {
		if d.Owners.Served(on) {
			b.v3[d.Path] = d
		}
	}
	b.v2 = slices.DeleteFunc(i.V2.Fragments, func(f archive.Fragment) bool { return !f.Owners.Served(on) })
	return b, nil
}
