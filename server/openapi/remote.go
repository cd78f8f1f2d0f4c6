package openapi

import (
	"crypto/sha512"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Remote has the documents that another server publishes for one group version.
type Remote struct {
	GroupVersion schema.GroupVersion
	// Handler proxies requests to the server.
	Handler http.Handler
	// V3URL is the URL of the server's OpenAPI v3 document, without the host; empty if there is none.
	V3URL string
	// V2 is the group version's part of the server's OpenAPI v2 document, and V2ETag that document's ETag. V2 is nil if there
	// is no such part.
	V2     *spec.Swagger
	V2ETag string
}

// Path returns the path of the group version without its first slash, such as "apis/example.com/v1".
func (r Remote) Path() string { return "apis/" + r.GroupVersion.String() }

// ofRemote returns the OpenAPI v3 document of another server: its own, or else one converted from OpenAPI v2, which can express
// less. ok is false if there is neither.
func (s *Service) ofRemote(r Remote) (d document, ok bool) {
	switch {
	case r.V3URL != "":
		return document{url: r.V3URL, remote: r.Handler}, true
	case r.V2 != nil:
		etag := hash(r.V2ETag)
		return document{url: location(r.Path(), etag), etag: etag, build: func(f form) ([][]byte, error) {
			return get(s.rendered, fmt.Sprint("v3 ", f, r.Path(), etag), func() ([][]byte, error) {
				return writeV3(r.Path(), openapiconv.ConvertV2ToV3(r.V2), f)
			})
		}}, true
	}
	return document{}, false
}

// withRemotes lists the servers whose documents have to be merged into the OpenAPI v2 document, and returns the ETag of the merged
// document, given that of this server's own.
func (s *Service) withRemotes(own string) (etag string, remotes []Remote) {
	for _, r := range s.remotes() {
		if r.V2 != nil {
			remotes = append(remotes, r)
			own = hash(own, r.Path(), r.V2ETag)
		}
	}
	return own, remotes
}

// mergeV2 merges documents of other servers into this server's own, which is JSON. Like in kube-apiserver's aggregator, different
// definitions of the same name are renamed. Unlike buildV2, this is expensive.
func mergeV2(own [][]byte, remotes []Remote, f form) ([][]byte, error) {
	merged, err := readV2(own)
	if err != nil {
		return nil, err
	}
	for _, r := range remotes {
		if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(merged, r.V2); err != nil {
			return nil, fmt.Errorf("merge OpenAPI v2 of %s: %w", r.Path(), err)
		}
	}
	text, err := merged.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("render OpenAPI v2: %w", err)
	}
	if f == asProto {
		if text, err = handler.ToProtoBinary(text); err != nil {
			return nil, fmt.Errorf("render OpenAPI v2 as protobuf: %w", err)
		}
	}
	return compressed(text)
}

// hash returns the ETag of a document that is made from the parts.
func hash(parts ...string) string {
	h := sha512.New()
	for _, part := range parts {
		fmt.Fprintln(h, part)
	}
	return fmt.Sprintf("%X", h.Sum(nil))
}
