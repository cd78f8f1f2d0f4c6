// Package codecs has the media types of responses that are not resources (errors and discovery), and what responses have in common.
package codecs

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

var withCBOR = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.WithSerializer(newCBOR))

// newCBOR describes CBOR without its nondeterministic encoder: upstream's discovery of the core group, which decodes what it has encoded,
// would panic with it.
func newCBOR(creater runtime.ObjectCreater, typer runtime.ObjectTyper) runtime.SerializerInfo {
	info := cbor.NewSerializerInfo(creater, typer)
	info.Serializer = struct{ runtime.Serializer }{info.Serializer}
	return info
}

// Serving returns codecs of JSON, YAML, protobuf and, where the feature gate CBORServingAndStorage is on, CBOR (KEP-4222):
// the media types of built-in resources.
func Serving() serializer.CodecFactory {
	if utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
		return withCBOR
	}
	return legacyscheme.Codecs
}

// AcceptsGzip reports whether the response may be compressed. Like upstream, it recognizes only the plain token.
func AcceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for token := range strings.SplitSeq(header, ",") {
			if strings.TrimSpace(token) == "gzip" {
				return true
			}
		}
	}
	return false
}

// WriteError sends the Status of an error.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, Serving(), schema.GroupVersion{}, w, r)
}
