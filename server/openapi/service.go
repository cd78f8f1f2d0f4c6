package openapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Config has the APIs that the service publishes.
type Config struct {
	// BuiltIn are the built-in group versions that are served.
	BuiltIn []schema.GroupVersion
	// Definitions lists the established CustomResourceDefinitions by name. They need no schemas, and the service does not change
	// them.
	Definitions func() []*apiextensionsv1.CustomResourceDefinition
	// Whole returns the current CustomResourceDefinition of that name, with its schemas.
	Whole func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)
	// Partly has, by name, definitions of which not all operations are served, and what is.
	Partly map[string]Serves
	// Remotes lists what other servers publish; nil for nothing. If two publish the same group version, the first one wins.
	Remotes func() []Remote
}

// Service serves OpenAPI documents. It is safe for concurrent use.
type Service struct {
	builtin     *builtin
	definitions func() []definition // without schemas
	whole       func(context.Context, string) (definition, error)
	partly      map[string]Serves
	remotes     func() []Remote
	rendered    *cache
	// seed is part of the ETag of every document with custom resources, since another release may render them differently.
	seed string
}

// New reads the index of the embedded documents. An error means that the binary was built from a broken archive.
func New(c Config) (*Service, error) {
	b, err := loadBuiltin(c.BuiltIn)
	if err != nil {
		return nil, err
	}
	if c.Remotes == nil {
		c.Remotes = func() []Remote { return nil }
	}
	seed := []string{b.release}
	for _, f := range b.v2 {
		seed = append(seed, fmt.Sprint(f.Proto))
	}
	return &Service{
		builtin:     b,
		definitions: c.Definitions,
		whole:       c.Whole,
		partly:      c.Partly,
		remotes:     c.Remotes,
		rendered:    newCache(keep),
		seed:        hash(seed...),
	}, nil
}

// The paths under which the documents are served.
const (
	PathV2 = "/openapi/v2"
	PathV3 = "/openapi/v3"
)

// ServeHTTP serves the OpenAPI v2 document, the list of OpenAPI v3 documents, and each of these. It responds with 404 to other
// paths, and for documents of group versions that are not served.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == PathV2:
		s.serveV2(w, r)
	case path == PathV3:
		s.serveV3Index(w, r)
	case strings.HasPrefix(path, PathV3+"/"):
		s.serveV3(w, r, strings.TrimPrefix(path, PathV3+"/"))
	default:
		http.NotFound(w, r)
	}
}
