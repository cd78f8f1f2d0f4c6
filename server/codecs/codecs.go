// Package codecs has the media types of responses, and what responses have in common.
package codecs

import (
	"net/http"
	"slices"
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

var inCBOR = serializer.WithSerializer(cbor.NewSerializerInfo)

var withCBOR = serializer.NewCodecFactory(legacyscheme.Scheme, inCBOR)

// Serving returns codecs of JSON, YAML, protobuf and, where the feature gate CBORServingAndStorage is on, CBOR (KEP-4222):
// the media types of resources.
func Serving() serializer.CodecFactory {
	if servesCBOR() {
		return withCBOR
	}
	return legacyscheme.Codecs
}

// WithoutProtobuf returns codecs of the media types of Serving for the kinds of a scheme, which have no protobuf.
func WithoutProtobuf(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	if servesCBOR() {
		return withoutProtobuf{serializer.NewCodecFactory(scheme, inCBOR)}
	}
	return withoutProtobuf{serializer.NewCodecFactory(scheme)}
}

func servesCBOR() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage)
}

type withoutProtobuf struct{ serializer.CodecFactory }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(c.CodecFactory.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
}

// General returns codecs of JSON, YAML and protobuf: the media types of discovery, and of refusals before a request reaches a
// resource. They have no CBOR, since client-go can't read discovery in it.
func General() serializer.CodecFactory { return legacyscheme.Codecs }

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

// WriteError sends the Status of an error about a resource.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, Serving(), schema.GroupVersion{}, w, r)
}
