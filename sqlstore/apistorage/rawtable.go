package apistorage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage/transcode"
)

// Table describes how a list is sent as a Table in JSON (API concepts, "Receiving resources as Tables").
type Table struct {
	// Version is the version of the Table.
	Version schema.GroupVersion
	// Rows makes a Table from part of the list.
	Rows func(ctx context.Context, part runtime.Object) (*metav1.Table, error)
	// WithMetadata includes the metadata of each row's object.
	WithMetadata bool
}

type tableKey struct{}

// WithTable returns a context for a list into a RawList of JSON, which is then written as a Table.
func WithTable(ctx context.Context, t Table) context.Context {
	return context.WithValue(ctx, tableKey{}, &t)
}

// writeTable writes the list as a Table. Objects are decoded page by page to make the cells. The metadata are copied from the
// stored JSON.
func (l *RawList) writeTable(table *Table, w io.Writer) error {
	objectHead := head(metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: table.Version.String()})
	for len(l.items) == 0 {
		if more, err := l.nextPage(); err != nil {
			return err
		} else if !more {
			break
		}
	}
	if len(l.items) == 0 { // rows may be null or an empty list
		part, _, err := l.tableOfPage(table)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(part)
	}
	return l.writePages(w, []byte("]}\n"), func(buffer []byte, first bool) ([]byte, error) {
		part, items, err := l.tableOfPage(table)
		if err != nil {
			return nil, err
		}
		if first {
			if buffer, err = appendTableHead(buffer, part); err != nil {
				return nil, err
			}
		}
		for i := range part.Rows {
			if i > 0 || !first {
				buffer = append(buffer, ',')
			}
			if buffer, err = appendRow(buffer, &part.Rows[i], items[i], objectHead, table.WithMetadata); err != nil {
				return nil, err
			}
		}
		return buffer, nil
	})
}

// tableOfPage returns the Table of the current page, and the item of each row.
func (l *RawList) tableOfPage(table *Table) (*metav1.Table, []*Raw, error) {
	s := l.walk.Storage
	page := s.NewList()
	itemsPtr, err := meta.GetItemsPtr(page)
	if err != nil {
		return nil, nil, err
	}
	objects, err := conversion.EnforcePtr(itemsPtr)
	if err != nil {
		return nil, nil, err
	}
	newItem := newItemFunc(page, objects)
	objects.Set(reflect.MakeSlice(objects.Type(), len(l.items), len(l.items)))
	for i, item := range l.items {
		into := objects.Index(i)
		if s.exact != nil {
			into.Set(reflect.ValueOf(newItem()).Elem())
		}
		if item.asStored, err = s.decodeParts(item.data, into.Addr().Interface().(runtime.Object), item.revision, true); err != nil {
			return nil, nil, s.undecodable(item.record, item.key, err)
		}
	}
	if err := s.versioner.UpdateList(page, uint64(l.walk.query.Revision), l.meta.Continue, l.meta.RemainingItemCount); err != nil {
		return nil, nil, err
	}
	part, err := table.Rows(l.ctx, page)
	if err != nil {
		return nil, nil, err
	}
	part.TypeMeta = metav1.TypeMeta{Kind: "Table", APIVersion: table.Version.String()}
	items, err := l.itemsOf(part.Rows)
	return part, items, err
}

// itemsOf returns the item of each row. The rows of some kinds are sorted.
func (l *RawList) itemsOf(rows []metav1.TableRow) ([]*Raw, error) {
	var byName map[types.NamespacedName]*Raw
	items := make([]*Raw, len(rows))
	for i := range rows {
		m, err := meta.Accessor(rows[i].Object.Object)
		if err != nil {
			return nil, err
		}
		name := types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
		if i < len(l.items) && l.items[i].name() == name {
			items[i] = l.items[i]
			continue
		}
		if byName == nil {
			byName = map[types.NamespacedName]*Raw{}
			for _, item := range l.items {
				byName[item.name()] = item
			}
		}
		if items[i] = byName[name]; items[i] == nil {
			return nil, fmt.Errorf("a Table has a row for %s, which is not in the list", name)
		}
	}
	return items, nil
}

func (o *Raw) name() types.NamespacedName {
	namespace, name := split(o.record.Key)
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// appendTableHead appends what comes before the rows of a Table, without the first byte.
func appendTableHead(b []byte, part *metav1.Table) ([]byte, error) {
	whole := *part
	whole.Rows = []metav1.TableRow{}
	text, err := json.Marshal(&whole)
	if err != nil {
		return b, err
	}
	return append(b, bytes.TrimSuffix(text, []byte("]}"))[1:]...), nil
}

func appendRow(b []byte, row *metav1.TableRow, item *Raw, head []byte, withMetadata bool) (_ []byte, err error) {
	b = append(b, `{"cells":[`...)
	for i, cell := range row.Cells {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendCell(b, cell); err != nil {
			return b, err
		}
	}
	b = append(b, ']')
	if len(row.Conditions) > 0 {
		text, err := json.Marshal(row.Conditions)
		if err != nil {
			return b, err
		}
		b = append(append(b, `,"conditions":`...), text...)
	}
	b = append(b, `,"object":`...)
	if !withMetadata {
		return append(b, "null}"...), nil
	}
	b = append(b, head...)
	if b, err = item.appendMetadata(b, row.Object.Object); err != nil {
		return b, err
	}
	return append(b, "}}"...), nil
}

// appendCell appends a cell as encoding/json does.
func appendCell(b []byte, cell any) ([]byte, error) {
	switch v := cell.(type) {
	case string:
		return append(append(append(b, '"'), sqlstore.Escape(v)...), '"'), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	}
	text, err := json.Marshal(cell)
	return append(b, text...), err
}

// appendMetadata appends `"metadata":{…}` with the resourceVersion. obj was decoded for the cells and may lack part of its
// metadata if it has a protobufKind.
func (o *Raw) appendMetadata(b []byte, obj runtime.Object) ([]byte, error) {
	kind := head(o.TypeMeta)
	if before, after, ok := o.split(kind); ok && o.asStored {
		if end := transcode.ObjectEnd(after); end > 0 {
			b = append(b, before[len(kind):]...)
			b = o.appendRevision(b)
			return append(b, after[:end]...), nil
		}
	}
	if o.storage.protobuf != nil {
		var err error
		if obj, err = o.decode(); err != nil {
			return b, err
		}
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return b, err
	}
	text, err := json.Marshal(&meta.AsPartialObjectMetadata(m).ObjectMeta)
	return append(append(b, `"metadata":`...), text...), err
}
