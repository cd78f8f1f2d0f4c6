package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// floorName is its name in results.
const floorName = "floor"

// floorCommand makes this binary the server with canned responses. It is a separate process, so that its CPU time does not
// include the load generator's.
const floorCommand = "floor-server"

// The sizes of kube-apiserver's responses to the requests of the phases, in bytes.
const (
	floorConfigMap   = 1_350
	floorPod         = 4_880
	floorPodProtobuf = 3_740
)

// prepareFloor prepares the server with canned responses.
func prepareFloor(s *server, pods int) error {
	s.ReadOnly = true
	self, err := os.Executable()
	s.commands = func([]string) []*command {
		return []*command{{dir: s.dir, binary: self, ready: readyz(s.ports[0]), args: []string{floorCommand, "-port", strconv.Itoa(s.ports[0]),
			"-cert", s.access.Certificate, "-key", s.access.Key, "-pods", strconv.Itoa(pods)}}}
	}
	return err
}

// serveFloor is the process of the server with canned responses.
func serveFloor(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet(floorCommand, flag.ContinueOnError)
	port := fs.Int("port", 0, "port on 127.0.0.1")
	certificate := fs.String("cert", "", "TLS certificate")
	key := fs.String("key", "", "its key")
	pods := fs.Int("pods", 0, "pods of a list")
	if err := fs.Parse(args); err != nil {
		return err
	}
	httpServer := &http.Server{Addr: loopback(*port), Handler: newFloorHandler(*pods), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { httpServer.Close() }) // connections have nothing to finish
	defer stop()
	if err := httpServer.ListenAndServeTLS(*certificate, *key); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving canned responses: %w", err)
	}
	return nil
}

// newFloorHandler answers the requests of the phases with as many bytes as kube-apiserver.
func newFloorHandler(pods int) http.Handler {
	configMap := []byte(`{"metadata":{"resourceVersion":"1"},"x":"` + strings.Repeat("x", floorConfigMap-43) + `"}`)
	pod := bytes.Repeat([]byte("x"), floorPod)
	list := bytes.Repeat([]byte("x"), pods*floorPod)
	watches := floorWatches{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := configMap
		switch {
		case r.Method == http.MethodGet && r.URL.Path == podsPath && strings.HasPrefix(r.Header.Get("Accept"), mediaProtobuf):
			body = list[:pods*floorPodProtobuf]
		case r.Method == http.MethodGet && r.URL.Path == podsPath:
			body = list
		case r.URL.Path == podsPath:
			body = pod
		case r.URL.Query().Has("watch"):
			watches.serve(w, r)
			return
		}
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has disconnected
		}
		if r.Method == http.MethodPost {
			watches.report(sent)
		}
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		if _, err := w.Write(body); err != nil {
			return // the client has disconnected
		}
	})
}

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
