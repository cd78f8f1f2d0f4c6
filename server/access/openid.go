package access

import (
	"fmt"
	"net/http"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// Paths of the documents for verifiers of service account tokens: OpenID Connect Discovery 1.0, section 4, and the key set that it
// refers to (RFC 7517).
const (
	OpenIDConfigPath = serviceaccount.OpenIDConfigPath
	JWKSPath         = serviceaccount.JWKSPath
)

// OpenIDHandlers returns the handlers of [OpenIDConfigPath] and [JWKSPath], by path. address is the host and port at
// which clients reach this server; it is in the URL of the key set, unless --service-account-jwks-uri is set. An issuer that is
// not an https URL has no such documents: that is an error, but the server works without them.
func (s *ServiceAccounts) OpenIDHandlers(address string) (map[string]http.Handler, error) {
	provider, err := serviceaccount.NewOpenIDMetadataProvider(s.Issuer, s.jwksURI, address, s.PublicKeys)
	if err != nil {
		return nil, fmt.Errorf("token verifiers will not find keys at %s: %w", OpenIDConfigPath, err)
	}
	return map[string]http.Handler{
		OpenIDConfigPath: document("application/json", provider.GetConfigJSON),
		JWKSPath:         document("application/jwk-set+json", provider.GetKeysetJSON),
	}, nil
}

// document serves what get returns, cacheable for the returned number of seconds.
func document(mediaType string, get func() (content []byte, maxAge int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, maxAge := get()
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", maxAge))
		if _, err := w.Write(content); err != nil {
			klog.FromContext(r.Context()).V(4).Info("Client left while reading", "path", r.URL.Path, "err", err)
		}
	})
}
