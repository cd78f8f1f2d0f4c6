package apistorage

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sqube/sqube/sqlstore"
)

// sharedObject is the object of a change that several watchers send. The first watcher that needs it decodes it for all, and the
// first that sends it encodes it for all.
//
// The results count as memory of watches (sqlstore.Store.Hold). They are kept only while a watcher is about to send them: a slow
// one may have to derive them again.
type sharedObject struct {
	users atomic.Int32
	now   atomic.Pointer[derived] // set while in use

	mu   sync.Mutex // guards the first use and the last
	held int        // bytes counted
	kept weak.Pointer[derived]
}

// sharedKey is the key of a sharedObject in sqlstore.Change.Cache.
type sharedKey struct {
	storage  *Storage
	last     bool
	events   Events // zero for objects
	metadata bool
}

// derived is a stored object, decoded and encoded. It must not be changed.
type derived struct {
	object    runtime.Object
	encodings sync.Map // runtime.Identifier or relayedKey → *encoding
}

type encoding struct {
	once  sync.Once
	bytes []byte
	size  int // of the event, see relayed
	err   error
}

// errPanicked is the result of an encoding that did not return.
var errPanicked = errors.New("encoding the object panicked; the log has the stack")

// use returns the decoded object, decoding it on first use. It is kept until done has been called as often as use.
func (o *sharedObject) use(store *sqlstore.Store, size int, decode func() (runtime.Object, error)) (*derived, error) {
	for users := o.users.Load(); users > 0; users = o.users.Load() {
		if o.users.CompareAndSwap(users, users+1) {
			return o.now.Load(), nil
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now.Load() // not nil if another watcher was faster
	if now == nil {
		if now = o.kept.Value(); now == nil {
			object, err := decode()
			if err != nil {
				return nil, err
			}
			now = &derived{object: object}
			o.kept = weak.Make(now)
		}
		o.now.Store(now)
		o.held = decodedAndEncoded * size
		store.Hold(o.held)
	}
	o.users.Add(1)
	return now, nil
}

// done ends one use.
func (o *sharedObject) done(store *sqlstore.Store) {
	if o.users.Add(-1) > 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users.Load() == 0 && o.now.Load() != nil {
		o.now.Store(nil)
		store.Release(o.held)
	}
}

// encoded returns the event as encode encodes it, once for each media type and version.
func (d *derived) encoded(id runtime.Identifier, event watch.EventType, size int, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	e := d.encoding(id)
	e.once.Do(func() {
		e.err = errPanicked // other watchers get this if encode panics
		// Encoders may set the kind of what they encode, so each gets a copy.
		e.bytes, e.err = encodeEvent(event, d.object.DeepCopyObject(), size, encode)
	})
	return e.bytes, e.err
}

func (d *derived) encoding(id any) *encoding {
	slot, ok := d.encodings.Load(id)
	if !ok {
		slot, _ = d.encodings.LoadOrStore(id, &encoding{})
	}
	return slot.(*encoding)
}

// shared returns the object of a change for all watchers of the same kind.
func (w *watcher) shared(c *sqlstore.Change, event watch.EventType) *sharedObject {
	key := sharedKey{storage: w.Storage, last: event == watch.Deleted, metadata: w.metadata}
	if w.events != nil {
		key.events = *w.events
	}
	slot, ok := c.Cache.Load(key)
	if !ok {
		slot, _ = c.Cache.LoadOrStore(key, &sharedObject{})
	}
	return slot.(*sharedObject)
}

// objectOf returns the object of a change, with the change's revision: the version that the change made, or with last the one it
// replaced. It calls object to make an object from the record.
func (w *watcher) objectOf(c *sqlstore.Change, last bool, object func(*sqlstore.Record, int64) (runtime.Object, error)) (runtime.Object, error) {
	r := version(c, last)
	obj, err := object(r, c.Record.Revision)
	if err != nil {
		return nil, unreadable(c, w.prefix+r.Key, err)
	}
	return obj, nil
}

// largeObject is the size from which an object is encoded outside the buffers of the watch's encoder, which would keep that size.
const largeObject = 32 << 10

// encodeEvent returns an event of the given type, as encode encodes it. size is that of the stored object.
func encodeEvent(event watch.EventType, object runtime.Object, size int, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	if raw, ok := object.(*Raw); ok {
		return raw.appendEvent(make([]byte, 0, size+eventOverhead), event, encode)
	}
	var text bytes.Buffer
	if size >= largeObject {
		inner := &embedded{object: object}
		if err := encode(inner, &text); err != nil {
			return nil, err
		}
		return inner.join(text.Bytes())
	}
	err := encode(object, &text)
	return text.Bytes(), err
}
