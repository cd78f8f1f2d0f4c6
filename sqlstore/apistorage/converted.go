package apistorage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/sqlstore"
)

// A response that has only a part of each object, a Table or the metadata, is
// made without ever having all of the objects at once.

// Pages decodes the list page by page and calls use with each page as a list,
// which has the metadata of the whole. An empty list has one empty page.
func (l *RawList) Pages(use func(page runtime.Object) error) error {
	s := l.walk.Storage
	for more := true; more; {
		page := s.NewList()
		itemsPtr, err := meta.GetItemsPtr(page)
		if err != nil {
			return err
		}
		items, err := conversion.EnforcePtr(itemsPtr)
		if err != nil {
			return err
		}
		newItem := newItemFunc(page, items)
		items.Set(reflect.MakeSlice(items.Type(), 0, len(l.items)))
		for _, item := range l.items {
			obj := newItem()
			if err := s.decode(item.data, obj, item.record.Revision); err != nil {
				return undecodable(item.record, item.key, err)
			}
			items.Set(reflect.Append(items, reflect.ValueOf(obj).Elem()))
		}
		if err := s.versioner.UpdateList(page, uint64(l.walk.query.Revision), l.meta.Continue, l.meta.RemainingItemCount); err != nil {
			return err
		}
		if err := use(page); err != nil {
			return err
		}
		if more, err = l.nextPage(); err != nil {
			return err
		}
	}
	return nil
}

// viewMetadata reads no more of a record than its metadata.
func (s *Storage) viewMetadata(ctx context.Context, r *sqlstore.Record, key string, into *metav1.PartialObjectMetadata) error {
	data, _, err := s.reveal(ctx, r.Value, key)
	if err != nil {
		return untransformable(r, key, err)
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
