package apistorage

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/sqlstore"
)

// ImportWrite decodes data, in any form that the codec reads, and returns the object and the write that would create it. It
// writes nothing. key is "namespace/name", or "name" for resources without namespaces. It fails if the object's name is not that
// in key.
func (s *Storage) ImportWrite(ctx context.Context, key string, data []byte) (*sqlstore.Write, runtime.Object, error) {
	row, full, err := s.rowKey(s.prefix+key, false)
	if err != nil {
		return nil, nil, err
	}
	obj := s.NewObject()
	if _, _, err := s.Codec.Decode(data, nil, obj); err != nil {
		return nil, nil, err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, err
	}
	if is := strings.TrimPrefix(accessor.GetNamespace()+"/"+accessor.GetName(), "/"); is != row {
		return nil, nil, fmt.Errorf("the value is a %s", is)
	}
	if err := s.versioner.PrepareObjectForStorage(obj); err != nil {
		return nil, nil, err
	}
	encoded, err := s.encode(obj)
	if err != nil {
		return nil, nil, err
	}
	w, err := s.prepare(ctx, row, full, obj, encoded, nil)
	return w, obj, err
}
