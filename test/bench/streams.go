package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// streamPath is the path of a watch that starts like an informer's: with all objects, and a bookmark after the last of them
// (KEP-3157).
func streamPath(collection string) string {
	return collection + "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
}

// initialEventsEnd is the annotation of that bookmark.
var initialEventsEnd = []byte("k8s.io/initial-events-end")

// streamPods reads all pods from the start of a watch, n times in sequence.
func streamPods(accept string, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		var length atomic.Int64
		r, err := s.load(ctx, 1, n, func(ctx context.Context, c *client, _ int) error {
			events, n, err := c.stream(ctx, get(streamPath(podsPath)).as(accept))
			if err == nil && events != s.sizes.Pods {
				err = fmt.Errorf("a streaming list of %d pods, not %d", events, s.sizes.Pods)
			}
			length.Store(n)
			return err
		})
		r.Bytes = length.Load()
		return r, err
	}
}

// stream reads a streaming list and returns its number of objects and its length.
func (c *client) stream(ctx context.Context, r request) (objects int, length int64, err error) {
	response, err := c.send(ctx, r)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	events := newEventReader(response.Body, r.accept, 64<<10)
	for {
		event, err := events.next()
		if err != nil {
			return objects, length, fmt.Errorf("a streaming list ended before its bookmark: %w", err)
		}
		length += int64(len(event))
		if bytes.Contains(event, initialEventsEnd) {
			return objects, length, nil
		}
		objects++
	}
}

// eventReader splits the stream of a watch into events.
type eventReader struct {
	stream *bufio.Reader
	framed bool // each event is preceded by its length, as in protobuf; else each is a line
	frame  []byte
}

func newEventReader(stream io.Reader, accept string, buffer int) *eventReader {
	return &eventReader{stream: bufio.NewReaderSize(stream, buffer), framed: strings.HasPrefix(accept, mediaProtobuf)}
}

// next returns the next event, which is valid until the next call.
func (r *eventReader) next() ([]byte, error) {
	if !r.framed {
		return r.stream.ReadSlice('\n')
	}
	var size [4]byte
	if _, err := io.ReadFull(r.stream, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n > maxEvent {
		return nil, fmt.Errorf("an event of %d bytes", n)
	}
	if n > cap(r.frame) {
		r.frame = make([]byte, n)
	}
	r.frame = r.frame[:n]
	_, err := io.ReadFull(r.stream, r.frame)
	return r.frame, err
}

// maxEvent is larger than any object that a server stores.
const maxEvent = 8 << 20

// follow passes what an informer would see of a collection to see, until the context ends: all objects, then their changes. A
// watch that ends is resumed where it was, on whatever server answers. If that is not possible, follow calls restart and begins again
// with all objects. synced is called when see has got all of them.
func (c *client) follow(ctx context.Context, collection, fieldSelector string, see func(seen), restart, synced func()) {
	version := "" // up to which all has been seen
	for ctx.Err() == nil {
		query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}}
		if fieldSelector != "" {
			query.Set("fieldSelector", fieldSelector)
		}
		if version != "" {
			query.Set("resourceVersion", version)
		} else {
			query.Set("sendInitialEvents", "true")
			query.Set("resourceVersionMatch", "NotOlderThan")
		}
		err := c.watch(ctx, collection+"?"+query.Encode(), func(event []byte) error {
			e := seenIn(event)
			switch e.kind {
			case "ERROR":
				return errExpired
			case "BOOKMARK":
				if bytes.Contains(event, initialEventsEnd) {
					version = e.version()
					synced()
				}
			default:
				see(e)
			}
			if version != "" {
				version = e.version()
			}
			return nil
		})
		if errors.Is(err, errExpired) || isStatus(err, http.StatusGone) {
			version = ""
			restart()
		}
		if wait(ctx, followPause) != nil {
			return
		}
	}
}

// followPause is how long follow waits before it resumes a watch.
const followPause = 100 * time.Millisecond

// errExpired is the end of a watch that can't be resumed.
var errExpired = errors.New("the watch has expired")

// watch passes each event of a watch in protobuf to see, until the watch or the context ends, or see returns an error.
func (c *client) watch(ctx context.Context, path string, see func(event []byte) error) (err error) {
	response, err := c.send(ctx, get(path).as(mediaProtobufWatch))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	events := newEventReader(response.Body, mediaProtobufWatch, eventBuffer)
	for {
		event, err := events.next()
		if err == nil {
			err = see(event)
		}
		if err != nil {
			return err
		}
	}
}

// eventBuffer is the buffer of each of thousands of watches.
const eventBuffer = 4 << 10

// field finds a field in a protobuf message by the numbers on its path, and returns its bytes, nil if it is absent. Nothing else
// of the message is decoded.
func field(message []byte, path ...protowire.Number) (found []byte) {
	for _, wanted := range path {
		found = nil
		for len(message) > 0 {
			number, kind, tag := protowire.ConsumeTag(message)
			if tag < 0 {
				return nil
			}
			length := protowire.ConsumeFieldValue(number, kind, message[tag:])
			if length < 0 {
				return nil
			}
			if value := message[tag : tag+length]; number == wanted {
				if found = value; kind == protowire.BytesType {
					found, _ = protowire.ConsumeBytes(value)
				}
			}
			message = message[tag+length:]
		}
		message = found
	}
	return found
}

// protobufMagic precedes the protobuf of every object.
const protobufMagic = "k8s\x00"

// objectIn returns the object in the protobuf body of an answer, or in an event, where it follows its type.
func objectIn(body []byte) []byte {
	const raw = 2 // of runtime.Unknown
	if len(body) < len(protobufMagic) {
		return nil
	}
	return field(body[len(protobufMagic):], raw)
}

// seen is what the benchmark reads of an event of a watch in protobuf. The numbers are those in Kubernetes' generated.proto files.
type seen struct {
	kind   string // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	object []byte
	meta   []byte
}

func seenIn(event []byte) seen {
	object := objectIn(field(event, 2, 1)) // WatchEvent.object.raw
	return seen{string(field(event, 1)), object, field(object, 1)}
}

func (s seen) name() string      { return string(field(s.meta, 1)) }
func (s seen) namespace() string { return string(field(s.meta, 3)) }
func (s seen) uid() string       { return string(field(s.meta, 5)) }
func (s seen) version() string   { return string(field(s.meta, 6)) }
func (s seen) deleting() bool    { return field(s.meta, 9) != nil }

// created returns the seconds of its creationTimestamp since 1970.
func (s seen) created() int64 {
	seconds, _ := protowire.ConsumeVarint(field(s.meta, 8, 1))
	return int64(seconds)
}

// phase returns the phase of a Pod.
func (s seen) phase() string { return string(field(s.object, 3, 1)) }
