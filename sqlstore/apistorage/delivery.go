package apistorage

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sqube/sqube/sqlstore"
)

// aheadBytes limits the objects, in bytes as stored, that a watcher decodes before its client has received them. A single object
// may be larger.
const aheadBytes = sqlstore.FollowBytes

// decodedAndEncoded is the memory of an object, decoded and encoded, in multiples of its stored size.
const decodedAndEncoded = 2

// delivery is the object of an event that is sent to a client.
type delivery struct {
	watcher *watcher
	event   watch.EventType
	number  uint64         // of the event
	size    int            // of the object as stored
	object  runtime.Object // nil if shared, or large and already encoded
	shared  *derived
}

// sentEvent is what is released once the client has received an event.
type sentEvent struct {
	size   int
	change *sqlstore.Change
	shared *sharedObject
	held   int // see sqlstore.Follower.Hold
	cost   int // see sqlstore.Follower.Read
}

// inFlight is what a watcher has sent and its client has not received.
type inFlight struct {
	size atomic.Int64 // of the events

	mu      sync.Mutex
	writing bool        // an event is being written
	over    bool        // nothing may be written from now on
	events  []sentEvent // empty for the events before first
	first   int
	sent    uint64    // events so far
	changed sync.Cond // the client has received something, or the watcher has ended
}

// await waits until an object of this size may be decoded.
func (w *watcher) await(size int) error {
	t := &w.inFlight
	if t.hasRoom(size) {
		return nil
	}
	defer context.AfterFunc(w.ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})()
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.hasRoom(size) {
		if w.ctx.Err() != nil {
			return errStopped
		}
		t.changed.Wait()
	}
	return nil
}

func (t *inFlight) hasRoom(size int) bool {
	ahead := t.size.Load()
	return ahead == 0 || ahead+int64(size) <= aheadBytes
}

// deliver sends an event. When the client takes it, its object is encoded and p is released.
func (w *watcher) deliver(event watch.EventType, d *delivery, p sentEvent) error {
	t := &w.inFlight
	d.watcher, d.event, d.size = w, event, p.size
	w.changed = time.Now()
	t.size.Add(int64(p.size))
	t.mu.Lock()
	t.sent++
	d.number = t.sent
	if t.first == len(t.events) || t.first > resultBuffer {
		t.events, t.first = slices.Delete(t.events, 0, t.first), 0
	}
	t.events = append(t.events, p)
	t.mu.Unlock()
	return w.send(watch.Event{Type: event, Object: d})
}

// index returns where the event with that number is in t.events. The caller holds t.mu.
func (t *inFlight) index(number uint64) int { return len(t.events) - 1 - int(t.sent-number) }

// release releases what an event holds.
func (w *watcher) release(p sentEvent) {
	if p.shared != nil {
		p.shared.done(w.store)
		w.follower.Share(-decodedAndEncoded * p.size)
	}
	if p.change != nil {
		w.follower.Done(p.change)
	}
	if p.held > 0 {
		w.follower.Release(p.held)
	}
	if p.cost > 0 {
		w.follower.Forget(p.cost)
	}
}

// beginWrite marks that an event is being written, or returns false if the watch has ended.
func (t *inFlight) beginWrite() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing = !t.over
	return t.writing
}

// encoded releases the object of the event with that number: only its encoded form remains.
func (w *watcher) encoded(number uint64) {
	t := &w.inFlight
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &t.events[t.index(number)]
	if p.cost > 0 {
		w.follower.Forget(p.cost - p.size)
		p.cost = p.size
	}
	if p.held > 0 {
		w.follower.Release(p.held - p.size)
		p.held = p.size
	}
}

// delivered releases the event with that number, which the client has received, and all events before it.
func (w *watcher) delivered(number uint64) {
	w.follower.Advance()
	t := &w.inFlight
	t.mu.Lock()
	defer t.mu.Unlock()
	for last := t.index(number); t.first <= last; t.first++ {
		w.releaseSent(&t.events[t.first])
	}
	t.writing = false
	t.changed.Broadcast()
}

// releaseAll releases everything in flight once the current write has ended.
func (w *watcher) releaseAll() {
	t := &w.inFlight
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for t.writing {
		t.changed.Wait()
	}
	for ; t.first < len(t.events); t.first++ {
		w.releaseSent(&t.events[t.first])
	}
}

// releaseSent releases an event that was sent. The caller holds inFlight.mu.
func (w *watcher) releaseSent(p *sentEvent) {
	w.inFlight.size.Add(-int64(p.size))
	w.release(*p)
	*p = sentEvent{}
}

// eventBuffers are for events with objects smaller than pooledEvent, like most. So a slow client does not hold on to larger
// buffers.
var eventBuffers = sync.Pool{New: func() any { return new([]byte) }}

const pooledEvent = 8 << 10

// CacheEncode implements runtime.CacheableObject. If it fails, the watch ends.
func (d *delivery) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) (err error) {
	if !d.watcher.inFlight.beginWrite() {
		return errStopped
	}
	defer func() {
		if err != nil {
			d.watcher.follower.Stop()
		}
		d.watcher.delivered(d.number)
	}()
	var data []byte
	if d.shared != nil {
		data, err = d.shared.encoded(id, d.event, d.size, encode)
	} else if raw, ok := d.object.(*Raw); ok && d.size < pooledEvent {
		buffer := eventBuffers.Get().(*[]byte)
		if data, err = raw.appendEvent((*buffer)[:0], d.event, encode); cap(data) <= 2*pooledEvent {
			*buffer = data
		}
		defer eventBuffers.Put(buffer)
	} else {
		object := d.object
		if d.size >= largeObject {
			d.object = nil // its memory is not needed while a slow client reads
		}
		if data, err = encodeEvent(d.event, object, d.size, encode); d.object == nil {
			d.watcher.encoded(d.number)
		}
	}
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// peek returns the object, which must not be changed, or nil if it is gone.
func (d *delivery) peek() runtime.Object {
	if d.shared != nil {
		return d.shared.object
	}
	return d.object
}

// GetObject implements runtime.CacheableObject. It is for clients that need objects rather than bytes.
func (d *delivery) GetObject() runtime.Object {
	defer d.watcher.delivered(d.number)
	if object := d.peek(); object != nil {
		return object.DeepCopyObject()
	}
	return d.watcher.NewObject()
}

// DeepCopyObject implements runtime.Object.
func (d *delivery) DeepCopyObject() runtime.Object { return d.GetObject() }

// GetObjectKind implements runtime.Object.
func (d *delivery) GetObjectKind() schema.ObjectKind {
	if object := d.peek(); object != nil {
		return object.GetObjectKind()
	}
	return schema.EmptyObjectKind
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (d *delivery) GetObjectMeta() metav1.Object {
	if accessor, err := meta.Accessor(d.peek()); err == nil {
		return accessor
	}
	return &metav1.ObjectMeta{}
}

var (
	_ runtime.CacheableObject   = (*delivery)(nil)
	_ metav1.ObjectMetaAccessor = (*delivery)(nil)
)
