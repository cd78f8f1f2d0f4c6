package apistorage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/sqlstore"
)

// viewMetadata reads no more of a record than its metadata, unless the schema of
// a custom resource has to be asked for them.
func (s *Storage) viewMetadata(ctx context.Context, r *sqlstore.Record, key string, into *metav1.PartialObjectMetadata) error {
	data, _, err := s.reveal(ctx, r.Value, key)
	if err != nil {
		return untransformable(r, key, err)
	}
	s.noted(r)
	if _, exact := s.cut(r.Revision); s.exact != nil && !exact {
		obj := s.NewObject()
		if err := s.decode(data, obj, r.Revision); err != nil {
			return undecodable(r, key, err)
		}
		m, err := meta.Accessor(obj)
		if err == nil {
			into.ObjectMeta = meta.AsPartialObjectMetadata(m).ObjectMeta
		}
		return err
	}
	text, err := metadataOf(data)
	if err == nil {
		err = utiljson.Unmarshal(text, &into.ObjectMeta)
	}
	if err != nil {
		return undecodable(r, key, err)
	}
	return s.versioner.UpdateObject(into, uint64(r.Revision))
}

var errNoMetadata = errors.New("the object has no metadata")

// metadataOf returns the JSON of the metadata in that of an object, of which it
// reads no more: the metadata come before what may be large.
func metadataOf(data []byte) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("%v: %w", name, err)
		}
		if name == "metadata" {
			return value, nil
		}
	}
	return nil, errNoMetadata
}
