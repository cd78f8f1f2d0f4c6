package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
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

// discardStream reads a streaming list and returns its length.
func (c *client) discardStream(ctx context.Context, r request) (int64, error) {
	_, length, err := c.stream(ctx, r)
	return length, err
}

// eventReader splits the stream of a watch into events.
type eventReader struct {
	stream *bufio.Reader
	framed bool // each event is preceded by its length, as in protobuf; else each is a line
	frame  []byte
}

func newEventReader(stream io.Reader, accept string, buffer int) *eventReader {
	return &eventReader{stream: bufio.NewReaderSize(stream, buffer), framed: accept == mediaProtobufWatch}
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
