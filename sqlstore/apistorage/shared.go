package apistorage

import (
	"bytes"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/sqlstore"
)

// object returns the object of a change, as of the change's revision: the
// version that it made, or the previous one where last is set.
//
// Where several watchers receive the change, the first to ask decodes the
// object for all of them, and the first to send it encodes it for all.
func (w *watcher) object(c *sqlstore.Change, last bool) (runtime.Object, error) {
	if c.Watchers <= 1 {
		return w.decodeChange(c, last)
	}
	slot, _ := c.Cache.LoadOrStore(cacheKey{w.Storage, last}, &decoded{})
	d := slot.(*decoded)
	d.once.Do(func() {
		obj, err := w.decodeChange(c, last)
		if err != nil {
			d.err = err
			return
		}
		d.object = share(obj)
	})
	return d.object, d.err
}

type cacheKey struct {
	storage *Storage
	last    bool
}

type decoded struct {
	once   sync.Once
	object runtime.Object
	err    error
}

func (w *watcher) decodeChange(c *sqlstore.Change, last bool) (runtime.Object, error) {
	r := &c.Record
	if last {
		r = c.Previous
	}
	key := w.prefix + r.Key
	obj := w.NewObject()
	if _, _, err := w.open(w.ctx, r, key, obj); err != nil {
		return nil, unreadable(c, key, err)
	}
	return obj, w.versioner.UpdateObject(obj, uint64(c.Record.Revision))
}

// sharedObject is an object that several watchers send. It keeps its
// encodings, one per media type and version. Nobody changes it: who wants to,
// takes a copy with GetObject.
type sharedObject struct {
	runtime.Object
	metav1.ObjectMetaAccessor

	encodings sync.Map // runtime.Identifier → *encoding
}

type encoding struct {
	once  sync.Once
	bytes []byte
	err   error
}

// share wraps obj, or returns it as it is where it has no metadata.
func share(obj runtime.Object) runtime.Object {
	accessor, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		if m, isMeta := obj.(metav1.Object); isMeta {
			accessor, ok = objectMeta{m}, true
		}
	}
	if !ok {
		return obj
	}
	return &sharedObject{Object: obj, ObjectMetaAccessor: accessor}
}

type objectMeta struct{ metav1.Object }

func (m objectMeta) GetObjectMeta() metav1.Object { return m.Object }

// CacheEncode implements runtime.CacheableObject.
func (o *sharedObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	slot, ok := o.encodings.Load(id)
	if !ok {
		slot, _ = o.encodings.LoadOrStore(id, &encoding{})
	}
	e := slot.(*encoding)
	e.once.Do(func() {
		var buffer bytes.Buffer
		// Encoders may set the kind of what they encode, so each gets a copy.
		e.err = encode(o.GetObject(), &buffer)
		e.bytes = buffer.Bytes()
	})
	if e.err != nil {
		return e.err
	}
	if splice, ok := w.(runtime.Splice); ok {
		splice.Splice(e.bytes)
		return nil
	}
	_, err := w.Write(e.bytes)
	return err
}

// GetObject implements runtime.CacheableObject.
func (o *sharedObject) GetObject() runtime.Object { return o.Object.DeepCopyObject() }

// DeepCopyObject implements runtime.Object.
func (o *sharedObject) DeepCopyObject() runtime.Object { return o.GetObject() }
