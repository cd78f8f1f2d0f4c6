package apistorage

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
)

// The byte read path: a read in the storage version sends the stored bytes with the resourceVersion inserted. Nothing is decoded
// or encoded.
//
// Callers pass a Raw to Get, or a RawList to GetList, in place of an object. As a runtime.CacheableObject, it gives the encoder
// of a response its bytes: JSON as stored (rawjson.go), or protobuf made from it (rawprotobuf.go). It supports no other encoders.

// Format is the encoding of a response.
type Format int

// The formats of the byte read path. JSON is not indented.
const (
	JSON Format = iota
	Protobuf
)

// Raw takes the place of one object.
type Raw struct {
	metav1.TypeMeta // of the object in the response
	Format          Format

	storage  *Storage
	key      string
	record   *sqlstore.Record
	revision int64 // in the response
	data     []byte
	asStored bool // see Storage.decodeParts
	change   bool // sent as an event: the row is unlikely to be read again in that format
}

// RawList takes the place of a list.
type RawList struct {
	metav1.TypeMeta                 // of the list in the response
	Item            metav1.TypeMeta // of its items
	Format          Format

	ctx   context.Context
	start walk   // before it began
	row   string // its key, if it is a list of one object
	walk  *walk
	page  walk   // before the current page was read
	items []*Raw // of the current page
	meta  metav1.ListMeta
	table *Table // nil for a list
}

var (
	_ runtime.CacheableObject = (*Raw)(nil)
	_ runtime.CacheableObject = (*RawList)(nil)
)

// GetObject implements runtime.CacheableObject: it decodes the object, or returns an empty one if that fails.
func (o *Raw) GetObject() runtime.Object {
	obj, err := o.decode()
	if err != nil {
		return o.storage.NewObject()
	}
	return obj
}

// Len returns the length of the stored object in bytes.
func (o *Raw) Len() int { return len(o.data) }

// DeepCopyObject implements runtime.Object.
func (o *Raw) DeepCopyObject() runtime.Object { c := *o; return &c }

// GetObjectKind implements runtime.Object.
func (o *Raw) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

// GetObject implements runtime.CacheableObject. A RawList is only ever encoded.
func (l *RawList) GetObject() runtime.Object {
	return &metav1.Status{Status: metav1.StatusFailure, Message: "the object has not been decoded"}
}

// DeepCopyObject implements runtime.Object.
func (l *RawList) DeepCopyObject() runtime.Object { c := *l; return &c }

// GetObjectKind implements runtime.Object.
func (l *RawList) GetObjectKind() schema.ObjectKind { return &l.TypeMeta }

// getRaw is Get into a Raw.
func (s *Storage) getRaw(ctx context.Context, r *sqlstore.Record, key string, out *Raw) error {
	data, _, err := s.unseal(ctx, r, key)
	if err != nil {
		return err
	}
	out.storage, out.key, out.record, out.revision, out.data = s, key, r, r.Revision, data
	return nil
}

// listRaw is GetList into a RawList. It reads the first page. The others are read, at the same revision, while the response is
// written. So a list takes the memory of one page, however long it is and however slow its client.
func (s *Storage) listRaw(ctx context.Context, w *walk, row string, out *RawList) (err error) {
	out.ctx, out.start, out.row, out.walk = ctx, *w, row, w
	defer func() { err = out.allCorrupt(err) }()
	out.table, _ = ctx.Value(tableKey{}).(*Table)
	w.accept = func(r *sqlstore.Record) (bool, error) {
		item, err := out.item(r)
		if item != nil {
			out.items = append(out.items, item)
		}
		return item != nil, err
	}
	if !w.opts.Recursive {
		if err := w.single(ctx, row); err != nil {
			return err
		}
	} else {
		if err := w.begin(ctx); err != nil {
			return err
		}
		if _, err := out.nextPage(); err != nil {
			return err
		}
	}
	// The metadata come first in a response. So the end of a list with a limit must be known before its remaining pages are read
	// for sending.
	end := *w
	end.accept = func(r *sqlstore.Record) (bool, error) {
		item, err := out.item(r)
		return item != nil, err
	}
	end.query.WithoutValues = w.opts.Predicate.Empty()
	if w.opts.Predicate.Limit > 0 {
		for end.hasNext() {
			if err := end.page(ctx); err != nil {
				return err
			}
		}
		if err := end.finish(ctx); err != nil {
			return err
		}
	}
	out.meta = metav1.ListMeta{ResourceVersion: strconv.FormatInt(w.query.Revision, 10), Continue: end.continueToken, RemainingItemCount: end.remaining}
	if sharded(&w.opts.Predicate) {
		out.meta.ShardInfo = &metav1.ShardInfo{Selector: w.opts.Predicate.ShardSelector.String()}
	}
	return nil
}

// item returns a record as an item of the list, or nil if its object does not match.
func (l *RawList) item(r *sqlstore.Record) (*Raw, error) {
	s := l.walk.Storage
	item := &Raw{TypeMeta: l.Item, Format: l.Format, storage: s, key: s.prefix + r.Key, record: r}
	if r.Value != nil { // nil if only the keys were requested
		if err := s.getRaw(l.ctx, r, item.key, item); err != nil {
			return nil, err
		}
	}
	if l.walk.undecided(r) {
		obj, err := item.decode()
		if err != nil {
			return nil, err
		}
		if ok, err := l.walk.opts.Predicate.Matches(obj); err != nil || !ok {
			return nil, nil // an object without attributes matches nothing
		}
	}
	return item, nil
}

// allCorrupt returns the error of a list that found a corrupt object, with the names of all others too. It returns any other error
// unchanged.
func (l *RawList) allCorrupt(err error) error {
	if !storage.IsCorruptObject(err) {
		return err
	}
	again, nothing := l.start, func(context.Context) error { return nil }
	found := again.eachObject(l.ctx, &again, l.row, nothing, again.NewObject, func(runtime.Object) {})
	return cmp.Or(found, err) // it may be gone meanwhile
}

// nextPage replaces the items by those of the next page, or returns false if there is none.
func (l *RawList) nextPage() (bool, error) {
	if !l.walk.hasNext() {
		return false, nil
	}
	l.page = *l.walk
	clear(l.items) // so that the previous page can be garbage-collected
	l.items = l.items[:0]
	return true, l.walk.page(l.ctx)
}

// CacheEncode implements runtime.CacheableObject.
func (o *Raw) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	if o.Format == Protobuf {
		return o.writeProtobuf(encode, w)
	}
	return o.writeJSON(encode, w)
}

// CacheEncode implements runtime.CacheableObject. It panics with http.ErrAbortHandler if a later page can't be read: the client
// must see the connection break, or it would take a part of the list for the whole.
func (l *RawList) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	sent := &sentWriter{w: w}
	write := l.writeJSON
	if l.Format == Protobuf {
		write = l.writeProtobuf
	}
	if l.table != nil {
		write = func(_ func(runtime.Object, io.Writer) error, w io.Writer) error { return l.writeTable(l.table, w) }
	}
	err := write(encode, sent)
	if !sent.begun {
		err = l.allCorrupt(err)
	}
	if err != nil && sent.begun && !sent.failed {
		utilruntime.HandleErrorWithContext(l.ctx, err, "A list broke off in the middle", "resource", l.walk.GroupResource)
		panic(http.ErrAbortHandler)
	}
	return err
}

// sentWriter records whether a response was begun, and whether writing it failed.
type sentWriter struct {
	w             io.Writer
	begun, failed bool
}

// Write implements io.Writer.
func (s *sentWriter) Write(p []byte) (int, error) {
	s.begun = true
	n, err := s.w.Write(p)
	s.failed = s.failed || err != nil
	return n, err
}
