package apistorage

import (
	"context"
	"errors"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/sqlstore"
)

// The byte read path: what is stored is what is sent, with the resourceVersion
// put in, so a read in the storage version decodes and encodes nothing.
//
// Raw and RawList stand in for the objects that Get and GetList are given to
// fill. They answer the encoder of a response as a runtime.CacheableObject
// does, with bytes: to JSON from the database (rawjson.go), to protobuf from
// what was encoded before (rawprotobuf.go). They take no other encoders.

// Format is what a response is encoded to.
type Format int

// The formats that bytes are served in. JSON is without indentation.
const (
	JSON Format = iota
	Protobuf
)

// Raw takes the place of one object.
type Raw struct {
	metav1.TypeMeta // of the object in the response
	Format          Format

	storage *Storage
	key     string
	record  *sqlstore.Record
	data    []byte
}

// RawList takes the place of a list.
type RawList struct {
	metav1.TypeMeta                 // of the list in the response
	Item            metav1.TypeMeta // of its items
	Format          Format

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

// getRaw is Get into a Raw.
func (s *Storage) getRaw(ctx context.Context, r *sqlstore.Record, key string, out *Raw) error {
	data, _, err := s.reveal(ctx, r.Value, key)
	if err != nil {
		return untransformable(r, key, err)
	}
	out.storage, out.key, out.record, out.data = s, key, r, data
	return nil
}

// rawPage is how many records a RawList reads at a time, so that the memory it
// takes does not grow with the list, nor the time for which it holds a
// snapshot of the database with the slowness of the client.
const rawPage = 500

// listRaw is GetList into a RawList. It reads the first page; the others are
// read, at the same revision, while the response is written.
func (s *Storage) listRaw(ctx context.Context, w *walk, row, start string, out *RawList) error {
	out.ctx, out.walk = ctx, w
	w.take = func(r *sqlstore.Record) (bool, error) { return out.take(ctx, r) }
	// What was encoded before need not be read; see load.
	w.query.WithoutValues = out.Format == Protobuf && w.opts.Predicate.Empty() && !sharded(&w.opts.Predicate)
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

// take adds a record to the page, unless it turns out not to match.
func (l *RawList) take(ctx context.Context, r *sqlstore.Record) (bool, error) {
	s := l.walk.Storage
	item := &Raw{TypeMeta: l.Item, Format: l.Format, storage: s, key: s.prefix + r.Key, record: r}
	if r.Value != nil {
		if err := s.getRaw(ctx, r, item.key, item); err != nil {
			return false, err
		}
	}
	if l.walk.undecided(r) {
		obj := s.NewObject()
		if err := s.decode(item.data, obj, r.Revision); err != nil {
			return false, undecodable(r, item.key, err)
		}
		if ok, err := l.walk.opts.Predicate.Matches(obj); err != nil || !ok {
			return false, nil
		}
	}
	l.items = append(l.items, item)
	return true, nil
}

// load reads the page again, with the values of its items this time.
func (l *RawList) load() error {
	q := l.walk.query
	q.WithoutValues, q.Limit = false, len(l.items)
	i := 0
	_, err := l.walk.store.List(l.ctx, q, func(r *sqlstore.Record) error {
		item := l.items[i]
		i++
		return item.storage.getRaw(l.ctx, r, item.key, item)
	})
	if errors.Is(err, sqlstore.ErrCompacted) {
		return l.walk.expired()
	}
	return interpret(err)
}

// nextPage replaces the items by those of the next page, or returns false when
// there is none.
func (l *RawList) nextPage() (bool, error) {
	if !l.walk.more || l.walk.pageSize == 0 {
		return false, nil
	}
	l.items, l.walk.taken = l.items[:0], 0
	return true, l.walk.fill(l.ctx, "")
}

// CacheEncode implements runtime.CacheableObject.
func (o *Raw) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	if o.Format == Protobuf {
		data, err := o.encoded(id, encode, func() error { return errNoObject })
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	return o.writeJSON(encode, w)
}

// CacheEncode implements runtime.CacheableObject.
func (l *RawList) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	if l.Format == Protobuf {
		return l.writeProtobuf(id, encode, w)
	}
	return l.writeJSON(encode, w)
}
