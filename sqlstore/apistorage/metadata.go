package apistorage

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage/transcode"
)

// viewMetadata decodes only the metadata of a record, unless the schema of a custom resource or a conversion from an older version may
// change them.
func (s *Storage) viewMetadata(ctx context.Context, r *sqlstore.Record, key string, into *metav1.PartialObjectMetadata) error {
	data, _, err := s.unseal(ctx, r, key)
	if err != nil {
		return err
	}
	if _, exact := s.offset(r.Revision); s.exact != nil && !exact || s.protobuf != nil && !s.protobuf.is(data) {
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
	text, err := transcode.Field(data, "metadata")
	if err == nil {
		err = utiljson.Unmarshal(text, &into.ObjectMeta)
	}
	if err == nil && s.protobuf != nil && len(into.Annotations) > 0 {
		err = s.protobuf.dropConverted(&into.ObjectMeta)
	}
	if err != nil {
		return s.undecodable(r, key, err)
	}
	return s.versioner.UpdateObject(into, uint64(r.Revision))
}
