// Package codecs tells in which media types is served what belongs to no resource: errors, and discovery.
package codecs

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

var withCBOR = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.WithSerializer(newCBOR))

// newCBOR describes CBOR without the encoder that leaves the order of fields open: upstream's discovery of the core group,
// which has to decode what it encoded, would panic when it is given that.
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
