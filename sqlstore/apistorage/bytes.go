package apistorage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
)

// The byte read path: what is stored is what is sent, with the resourceVersion
// put in, so a read in the storage version decodes and encodes nothing.
//
// Raw and RawList stand in for the objects that Get and GetList are given to
// fill. They answer the encoder of a response as a runtime.CacheableObject
// does, with bytes. Only JSON encoders that don't indent may be used on them.
// A row that does not look as expected, because it was stored in another
// version, is decoded and encoded as without them.

// Raw takes the place of one object.
type Raw struct {
	metav1.TypeMeta // of the object in the response
	storage         *Storage
	key             string
	record          *sqlstore.Record
	data            []byte
}

// RawList takes the place of a list.
type RawList struct {
	metav1.TypeMeta                 // of the list in the response
	Item            metav1.TypeMeta // of its items

	ctx   context.Context
	walk  *walk
	items []*Raw
	meta  metav1.ListMeta
}

var (
	_ runtime.CacheableObject = (*Raw)(nil)
	_ runtime.CacheableObject = (*RawList)(nil)
)

// errNoObject is what a conversion of a raw object gets that needs the object.
var errNoObject = errors.New("the object has not been decoded")

// GetObject implements runtime.CacheableObject: it decodes the object, or
// returns an empty one where that fails.
func (o *Raw) GetObject() runtime.Object {
	obj := o.storage.NewObject()
	if err := o.storage.decode(o.data, obj, o.record.Revision); err != nil {
		return o.storage.NewObject()
	}
	return obj
}

// DeepCopyObject implements runtime.Object.
func (o *Raw) DeepCopyObject() runtime.Object { c := *o; return &c }

// GetObjectKind implements runtime.Object.
func (o *Raw) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

// GetObject implements runtime.CacheableObject. A RawList is only ever encoded.
func (l *RawList) GetObject() runtime.Object {
	return &metav1.Status{Status: metav1.StatusFailure, Message: errNoObject.Error()}
}

// DeepCopyObject implements runtime.Object.
func (l *RawList) DeepCopyObject() runtime.Object { c := *l; return &c }

// GetObjectKind implements runtime.Object.
func (l *RawList) GetObjectKind() schema.ObjectKind { return &l.TypeMeta }

// head is how the JSON of an object begins: kind and apiVersion come first.
func head(t metav1.TypeMeta) []byte {
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, t.Kind, t.APIVersion)
}

// getRaw is Get into a Raw.
func (s *Storage) getRaw(ctx context.Context, r *sqlstore.Record, key string, out *Raw) error {
	data, _, err := s.reveal(ctx, r.Value, key)
	if err != nil {
		return corrupt(key, storage.NewInternalError(fmt.Errorf("unable to transform key %q: %w", key, err)))
	}
	out.storage, out.key, out.record, out.data = s, key, r, data
	return nil
}

// CacheEncode implements runtime.CacheableObject.
func (o *Raw) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	before, after, ok := o.split(head(o.TypeMeta))
	if !ok {
		return o.encode(encode, w)
	}
	buffer := make([]byte, 0, len(o.data)+64)
	buffer = append(buffer, before...)
	buffer = o.appendRevision(buffer)
	buffer = append(buffer, after...)
	buffer = append(buffer, '\n')
	_, err := w.Write(buffer)
	return err
}

// encode takes the long way.
func (o *Raw) encode(encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	obj := o.storage.NewObject()
	if err := o.storage.decode(o.data, obj, o.record.Revision); err != nil {
		return corrupt(o.key, err)
	}
	return encode(obj, w)
}

func (o *Raw) appendRevision(buffer []byte) []byte {
	buffer = append(buffer, `,"resourceVersion":"`...)
	buffer = strconv.AppendInt(buffer, o.record.Revision, 10)
	return append(buffer, '"')
}

var (
	metadataField = []byte(`"metadata":{"`)
	uidField      = []byte(`,"uid":"`)
)

// split cuts the stored JSON where the resourceVersion belongs: in metadata,
// behind the uid. Before that come only names, so the first field called uid
// is the right one. It returns false where the JSON has another form.
func (o *Raw) split(head []byte) (before, after []byte, ok bool) {
	rest, ok := bytes.CutPrefix(o.data, head)
	if !ok || !bytes.HasPrefix(rest, metadataField) {
		return nil, nil, false
	}
	const longest = 1 << 10
	uid := bytes.Index(rest[:min(len(rest), longest)], uidField)
	if uid < 0 {
		return nil, nil, false
	}
	start := len(head) + uid + len(uidField)
	end := bytes.IndexByte(o.data[start:], '"')
	if end < 0 {
		return nil, nil, false
	}
	cut := start + end + 1
	// Names have no braces; one before the uid means that it is not in metadata.
	if bytes.IndexByte(o.data[len(head)+len(metadataField):start], '}') >= 0 {
		return nil, nil, false
	}
	return o.data[:cut], o.data[cut:], true
}

// rawPage is how many records a RawList reads at a time, so that the memory it
// takes does not grow with the list, nor the time for which it holds a
// snapshot of the database with the slowness of the client.
const rawPage = 500

// listRaw is GetList into a RawList. It reads the first page; the others are
// read, at the same revision, while the response is written.
func (s *Storage) listRaw(ctx context.Context, w *walk, row, start string, out *RawList) error {
	out.ctx, out.walk = ctx, w
	w.take = func(r *sqlstore.Record) (bool, error) {
		key := s.prefix + r.Key
		item := &Raw{TypeMeta: out.Item}
		if err := s.getRaw(ctx, r, key, item); err != nil {
			return false, err
		}
		if w.undecided(r) {
			obj := s.NewObject()
			if err := s.decode(item.data, obj, r.Revision); err != nil {
				return false, corrupt(key, err)
			}
			if ok, err := w.opts.Predicate.Matches(obj); err != nil || !ok {
				return false, nil
			}
		}
		out.items = append(out.items, item)
		return true, nil
	}
	var err error
	switch {
	case !w.opts.Recursive:
		err = w.single(ctx, row)
	case w.opts.Predicate.Limit > 0:
		err = w.collection(ctx, start)
	default:
		w.pageSize = rawPage
		err = w.fill(ctx, start)
	}
	out.meta = metav1.ListMeta{ResourceVersion: strconv.FormatInt(w.query.Revision, 10), Continue: w.token, RemainingItemCount: w.remaining}
	return err
}

// CacheEncode implements runtime.CacheableObject.
func (l *RawList) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	meta, err := json.Marshal(l.meta)
	if err != nil {
		return err
	}
	// One byte first tells the writer of responses that more will come, so that
	// it compresses by the size of all.
	buffer := append(head(l.TypeMeta)[1:], `"metadata":`...)
	buffer = append(append(buffer, meta...), `,"items":[`...)
	if _, err := io.WriteString(w, "{"); err != nil {
		return err
	}
	separator := ""
	for {
		if buffer, err = l.appendItems(buffer, &separator, encode); err != nil {
			return err
		}
		more := l.walk.more && l.walk.pageSize > 0
		if !more {
			buffer = append(buffer, "]}\n"...)
		}
		if _, err := w.Write(buffer); err != nil || !more {
			return err
		}
		buffer, l.items = buffer[:0], l.items[:0]
		l.walk.taken = 0
		if err := l.walk.fill(l.ctx, ""); err != nil {
			return err
		}
	}
}

// appendItems appends the items of a page. Items have no kind and apiVersion of
// their own in the lists of built-in resources.
func (l *RawList) appendItems(buffer []byte, separator *string, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	prefix := head(l.Item)
	for _, item := range l.items {
		buffer = append(buffer, *separator...)
		*separator = ","
		buffer = append(buffer, '{')
		if before, after, ok := item.split(prefix); ok {
			buffer = append(buffer, before[len(prefix):]...)
			buffer = item.appendRevision(buffer)
			buffer = append(buffer, after...)
			continue
		}
		var encoded bytes.Buffer
		if err := item.encode(encode, &encoded); err != nil {
			return nil, err
		}
		text, ok := bytes.CutPrefix(bytes.TrimSpace(encoded.Bytes()), prefix)
		if !ok {
			return nil, fmt.Errorf("the object at %q was encoded as another kind than %s", item.key, l.Item.Kind)
		}
		buffer = append(buffer, text...)
	}
	return buffer, nil
}
