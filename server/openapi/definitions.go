package openapi

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apiextensionsfeatures "k8s.io/apiextensions-apiserver/pkg/features"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// definition is a CustomResourceDefinition to publish.
type definition = *apiextensionsv1.CustomResourceDefinition

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

// withSchemas returns the current definition of that name with its schemas, or nil if it has been deleted. It may be newer than d,
// and than the ETag of a document that is made of it. Clients will get a newer ETag later.
func (s *Service) withSchemas(d definition) (definition, error) {
	whole, err := s.whole(context.Background(), d.Name) // not a request's context: others may wait for the document, too
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the schemas of %s: %w", d.Name, err)
	}
	return whole, nil
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
