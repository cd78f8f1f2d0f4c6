package apistorage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sqube/sqube/sqlstore"
)

// Sink takes encoded events for the client of a watch.
type Sink interface {
	// Compressed reports whether each event is to be a member of a gzip stream.
	Compressed() bool
	// Send takes an event with its frame, which had that size before both. It does not keep it.
	Send(event []byte, size int) error
	// Flush sends all events to the client.
	Flush()
}

// relay sends the changes that wait in the subscription, in the goroutine of the reader, without its encoder. It returns those that need
// the encoder, from the first such one on, which may also be one that ends the watch. An error is the end of the watch.
func (w *watcher) relay(out Sink) (rest []*sqlstore.Change, err error) {
	changes, err := w.sub.Drain()
	sent := false
	for i, c := range changes {
		if err != nil {
			w.follower.Done(c)
			continue
		}
		event, done, failed := w.encode(c, out.Compressed())
		if failed != nil {
			rest = changes[i:]
			break
		}
		w.from = max(w.from, c.Record.Revision)
		if event.bytes != nil {
			err = out.Send(event.bytes, event.size)
			w.follower.Advance()
			sent = true
		}
		done()
		changes[i] = nil
	}
	if sent && err == nil {
		out.Flush()
	}
	return rest, err
}

// relayed is an event as relay sends it, nil if there is none, and its size before compression and without a frame.
type relayed struct {
	bytes []byte
	size  int
}

// errEncoder means that only the reader's encoder can encode an event.
var errEncoder = errors.New("the event needs an encoder")

func noEncoder(runtime.Object, io.Writer) error { return errEncoder }

// encode returns what to send for a change, and a function that releases the change. If it returns an error, the caller still has the change.
func (w *watcher) encode(c *sqlstore.Change, compressed bool) (relayed, func(), error) {
	event := watch.EventType("")
	if c.Record.Revision > w.from {
		var err error
		if event, err = w.event(c); err != nil {
			return relayed{}, nil, err
		}
	}
	if event == "" {
		return relayed{}, func() { w.follower.Done(c) }, nil
	}
	size := len(version(c, event == watch.Deleted).Value)
	if c.Watchers > 1 {
		shared := w.shared(c, event)
		use, err := shared.use(w.store, size, func() (runtime.Object, error) { return w.eventObject(c, event) })
		if err != nil {
			return relayed{}, nil, err
		}
		encoded, err := use.relayed(event, size, compressed)
		if err != nil {
			shared.done(w.store)
			return relayed{}, nil, err
		}
		w.follower.Share(decodedAndEncoded * size)
		return encoded, func() { w.release(sentEvent{size: size, change: c, shared: shared}) }, nil
	}
	obj, err := w.eventObject(c, event)
	if err != nil {
		return relayed{}, nil, err
	}
	buffer := eventBuffers.Get().(*[]byte)
	encoded, err := encodeRelayed((*buffer)[:0], obj.(*Raw), event, compressed)
	if cap(encoded.bytes) <= 2*pooledEvent {
		*buffer = encoded.bytes
	}
	if err != nil {
		eventBuffers.Put(buffer)
		return relayed{}, nil, err
	}
	p := sentEvent{size: size, change: c, held: decodedAndEncoded * size}
	w.follower.Hold(p.held)
	return encoded, func() {
		w.release(p)
		eventBuffers.Put(buffer)
	}, nil
}

// relayedKey is the key of an event in derived.encodings.
type relayedKey struct {
	event      watch.EventType
	compressed bool
}

// relayed returns the event for relay, encoded once for all watchers. The object is a Raw.
func (d *derived) relayed(event watch.EventType, size int, compressed bool) (relayed, error) {
	e := d.encoding(relayedKey{event, compressed})
	e.once.Do(func() {
		e.err = errPanicked
		var made relayed
		made, e.err = encodeRelayed(make([]byte, 0, size+eventOverhead), d.object.(*Raw), event, compressed)
		e.bytes, e.size = made.bytes, made.size
	})
	return relayed{e.bytes, e.size}, e.err
}

// frameSize is the length of the frame that precedes an event in protobuf.
const frameSize = 4

// encodeRelayed encodes an event into a buffer.
func encodeRelayed(b []byte, object *Raw, event watch.EventType, compressed bool) (relayed, error) {
	frame := 0
	if object.Format == Protobuf {
		frame = frameSize
		b = append(b, make([]byte, frameSize)...)
	}
	b, err := object.appendEvent(b, event, noEncoder)
	if err != nil {
		return relayed{b, 0}, err
	}
	size := len(b) - frame
	if frame > 0 {
		binary.BigEndian.PutUint32(b, uint32(size))
	}
	if compressed {
		b, err = compress(b)
	}
	return relayed{b, size}, err
}

// GzipWriters has *gzip.Writers of the level at which all answers are compressed.
var GzipWriters = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed) // upstream's level
	if err != nil {
		panic(err) // only for an invalid level
	}
	return w
}}

// compress returns a member of a gzip stream. It is flushed before its end, so that readers get all of it before the next one arrives.
func compress(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w := GzipWriters.Get().(*gzip.Writer)
	defer GzipWriters.Put(w)
	w.Reset(&out)
	_, err := w.Write(b)
	err = errors.Join(err, w.Flush(), w.Close())
	w.Reset(nil)
	return out.Bytes(), err
}
