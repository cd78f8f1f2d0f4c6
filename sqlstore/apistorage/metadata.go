package apistorage

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage/transcode"
)

// viewMetadata decodes only the metadata of a record, unless a conversion from an older version or a repair may change them.
func (s *Storage) viewMetadata(ctx context.Context, r *sqlstore.Record, key string, into *metav1.PartialObjectMetadata) error {
	data, _, err := s.unseal(ctx, r, key)
	if err != nil {
		return err
	}
	if !s.keepsMetadata(data) {
		return s.viewMetadataOf(r, key, data, into)
	}
	text, err := transcode.Field(data, "metadata")
	if err == nil {
		err = utiljson.Unmarshal(text, &into.ObjectMeta)
	}
	if s.exact != nil && (err != nil || into.Generation == 0) {
		if _, exact := s.offset(r.Revision); !exact { // upstream repairs them
			return s.viewMetadataOf(r, key, data, into)
		}
	}
	if err == nil && s.protobuf != nil && len(into.Annotations) > 0 {
		err = s.protobuf.dropConverted(&into.ObjectMeta)
	}
	if err != nil {
		return s.undecodable(r, key, err)
	}
	return s.versioner.UpdateObject(into, uint64(r.Revision))
}

// keepsMetadata reports whether an object with that JSON has the metadata that are in it, since it is stored in the version that is read.
// The schema of a custom resource never changes them.
func (s *Storage) keepsMetadata(data []byte) bool {
	if s.exact == nil {
		return s.protobuf == nil || s.protobuf.is(data)
	}
	kind := s.NewObject().GetObjectKind().GroupVersionKind()
	version, err := transcode.Field(data, "apiVersion")
	return err == nil && string(version) == strconv.Quote(kind.GroupVersion().String())
}

// viewMetadataOf is viewMetadata by decoding all of the object.
func (s *Storage) viewMetadataOf(r *sqlstore.Record, key string, data []byte, into *metav1.PartialObjectMetadata) error {
	obj := s.NewObject()
	if err := s.decode(data, obj, r.Revision); err != nil {
		return s.undecodable(r, key, err)
	}
	m, err := meta.Accessor(obj)
	if err == nil {
		into.ObjectMeta = meta.AsPartialObjectMetadata(m).ObjectMeta
	}
	return err
}
