package main

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
)

// floorEvent is the length of kube-apiserver's event of a ConfigMap in bytes.
const floorEvent = 1_400

// floorWatches are the watches of the server with canned responses. Each gets an event for every created object, made once and
// written by all handlers. Events that are ready at the same time are written together.
type floorWatches struct {
	mu   sync.Mutex
	open []*floorWatch
}

// floorWatch is one of them.
type floorWatch struct {
	mu    sync.Mutex
	ready [][]byte
	wake  chan struct{} // holds one
}

// report sends an event of the object that a body creates to all watches.
func (f *floorWatches) report(body []byte) {
	event := append([]byte(`{"type":"ADDED","object":`), body...)
	event = append(event, bytes.Repeat([]byte(" "), max(0, floorEvent-len(event)-2))...)
	event = append(event, "}\n"...)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.open {
		w.mu.Lock()
		w.ready = append(w.ready, event)
		w.mu.Unlock()
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// serve answers a watch until its client disconnects.
func (f *floorWatches) serve(w http.ResponseWriter, r *http.Request) {
	watch := &floorWatch{wake: make(chan struct{}, 1)}
	f.mu.Lock()
	f.open = append(f.open, watch)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open = slices.DeleteFunc(f.open, func(other *floorWatch) bool { return other == watch })
	}()
	flusher := w.(http.Flusher)
	flusher.Flush()
	var events [][]byte
	for {
		select {
		case <-watch.wake:
		case <-r.Context().Done():
			return
		}
		watch.mu.Lock()
		events, watch.ready = watch.ready, events[:0]
		watch.mu.Unlock()
		for _, event := range events {
			if _, err := w.Write(event); err != nil {
				return // the client has disconnected
			}
		}
		flusher.Flush()
	}
}
