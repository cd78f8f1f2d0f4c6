package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fanOut are watches, and changes that they report.
type fanOut struct {
	collection  string
	watches     []string            // the collection's paths to watch, without "watch" and "resourceVersion"
	connections int                 // that carry the watches
	expected    func(watch int) int // how many of the changes a watch reports
	changes     int                 // how many there are
	change      func(i int) request // makes the ith
	unwatched   func(i int) request // makes a like change before there are watches; nil to measure none
	pace        int                 // changes per second; 0 for as many as the server can make
	mark        string              // what precedes a change's number, six digits, in its event
}

// fanOutWriters is the number of clients that make the changes.
const fanOutWriters = 4

// arrival is a received event.
type arrival struct {
	change int
	at     time.Time
}

// run opens the watches, makes the changes and waits until each watch has reported all of its changes. An operation is one
// event delivered to one watch. Its CPU includes the cost of the changes, which the same number of them without watches shows. The
// latency is from sending a change to its event.
func (f fanOut) run(s *session, ctx context.Context) (result, error) {
	senders, err := s.dialer.dialAll(ctx, fanOutWriters)
	if err != nil {
		return result{}, err
	}
	defer senders.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alone, sent := sample{}, make([]time.Time, f.changes)
	if f.unwatched != nil {
		if err := s.observe(&alone, func() error { return f.make(ctx, senders, f.unwatched, sent) }); err != nil {
			return result{}, err
		}
	}
	opened, err := s.openWatches(ctx, f.collection, f.watches, f.connections)
	if err != nil {
		return result{}, err
	}
	defer opened.close()

	arrivals := make([][]arrival, len(f.watches))
	var running sync.WaitGroup
	for i, stream := range opened.streams {
		running.Go(func() {
			var err error
			if arrivals[i], err = f.read(stream, f.expected(i)); err != nil {
				cancel(fmt.Errorf("watch of %s: %w", f.watches[i], err))
			}
		})
	}
	var m sample
	err = s.observe(&m, func() error {
		if err := f.make(ctx, senders, f.change, sent); err != nil {
			cancel(err)
		}
		running.Wait()
		return context.Cause(ctx)
	})
	if err != nil {
		return result{}, err
	}
	for _, of := range arrivals {
		for _, a := range of {
			m.latencies = append(m.latencies, a.at.Sub(sent[a.change]))
		}
	}
	r := m.result(len(f.watches), len(m.latencies))
	if f.unwatched != nil {
		r.Delivery = microseconds(m.cpu-alone.cpu) / figure(len(m.latencies))
	}
	return r, nil
}

// make makes all changes, and notes when it has sent each.
func (f fanOut) make(ctx context.Context, senders clients, change func(int) request, sent []time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	next := make(chan int)
	for _, c := range senders {
		running.Go(func() {
			for i := range next {
				r := change(i)
				sent[i] = time.Now()
				if err := c.do(ctx, r); err != nil {
					cancel(err)
				}
			}
		})
	}
	due := time.Now()
	for i := range sent {
		select {
		case next <- i:
		case <-ctx.Done():
		}
		if f.pace > 0 {
			if err := paced(ctx, &due, 1, f.pace); err != nil {
				cancel(err)
			}
		}
	}
	close(next)
	running.Wait()
	return context.Cause(ctx)
}

// read records when each event arrived and returns once it has them all. It finds a change's number in the event's text, since
// decoding would cost more CPU than the server's work that is measured.
func (f fanOut) read(stream io.Reader, expected int) (arrivals []arrival, err error) {
	const digits = 6
	events := newEventReader(stream, mediaJSON, 64<<10)
	mark := []byte(f.mark)
	seen := map[int]bool{}
	for len(arrivals) < expected {
		event, err := events.next()
		if err != nil {
			return nil, fmt.Errorf("it ended with %d events missing: %w", expected-len(arrivals), err)
		}
		_, rest, found := bytes.Cut(event, mark)
		if !found || len(rest) < digits {
			return nil, fmt.Errorf("an event of an unexpected object: %.300s", event)
		}
		i, err := strconv.Atoi(string(rest[:digits]))
		if err != nil || i >= f.changes || seen[i] {
			return nil, fmt.Errorf("a duplicate or unexpected event: %.300s", event)
		}
		seen[i] = true
		arrivals = append(arrivals, arrival{i, time.Now()})
	}
	return arrivals, nil
}

// openedWatches are watches over few connections.
type openedWatches struct {
	clients clients
	streams []io.ReadCloser
}

// close ends the watches. The errors of their streams do not matter.
func (o openedWatches) close() {
	for _, stream := range o.streams {
		_ = stream.Close()
	}
	o.clients.close()
}

// openWatches opens watches of paths of a collection from its current resourceVersion on.
func (s *session) openWatches(ctx context.Context, collection string, paths []string, connections int) (o openedWatches, err error) {
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	revision, err := s.newest(ctx, collection)
	if err != nil {
		return o, err
	}
	for i, path := range paths {
		if len(o.clients) < min(i+1, connections) { // one by one: servers close connections if many are idle
			c, err := s.dialer.dial(ctx)
			if err != nil {
				return o, err
			}
			o.clients = append(o.clients, c)
		}
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		// The response arrives once the server has started the watch.
		var response *http.Response
		if err := whenServed(ctx, retryAfter, func() (err error) {
			response, err = o.clients[i%connections].send(ctx, get(path+separator+"watch=1&resourceVersion="+string(revision)))
			return err
		}); err != nil {
			return o, err
		}
		o.streams = append(o.streams, response.Body)
	}
	return o, nil
}
