package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// crowdFigures are what phases with many clients measure beside a result's other figures.
type crowdFigures struct {
	// Succeeded is how many percent of the writes, or of the objects' lives, did.
	Succeeded figure `json:"succeeded_percent,omitempty"`
	// Delivered is how many percent of the events that acknowledged writes cause came, and Events how many.
	Delivered figure `json:"delivered_percent,omitempty"`
	Events    int    `json:"events,omitempty"`
	// Lag is the 99th percentile of the times from the sending of a write to its event, in milliseconds.
	Lag figure `json:"lag_p99_ms,omitempty"`
	// ReadP99 is that of the reads.
	ReadP99 figure `json:"read_p99_ms,omitempty"`
	// Resumed is how often watches ended and were resumed, and Relisted how often that needed a list.
	Resumed  int `json:"resumed,omitempty"`
	Relisted int `json:"relisted,omitempty"`
	// FirstError is the first failure of a write.
	FirstError string `json:"first_error,omitempty"`
}

// The lines of phases with many clients.
var crowdRows = []row{
	{unit: "writes per s", value: perSecond.value},
	{unit: "p99 ms of a write", value: p99.value},
	{unit: "writes that succeed, %", value: func(r result) figure { return r.Succeeded }},
	{unit: "events delivered, %", value: func(r result) figure { return r.Delivered }},
	{unit: "p99 ms from a write to its event", value: func(r result) figure { return r.Lag }},
	{unit: "CPU µs per write", value: cpuMicros.value, ratio: true},
}

// crowds are how many clients there are at once, and crowdWatchers how many watches of everything.
var (
	crowds        = []int{50, 200, 500, 1000}
	crowdWatchers = []int{1, 20}
)

// clientsPhases measure many clients with connections of their own.
func clientsPhases(n sizes) []phase {
	phases := []phase{{phaseStart, false, (*session).start, nil}}
	for _, watchers := range crowdWatchers {
		for _, clients := range crowds {
			c := crowd{clients: n.share(clients), watchers: watchers, writes: n.Writes, prefix: fmt.Sprintf("c%d-%d", clients, watchers)}
			name := fmt.Sprintf("%d clients, %d watchers", clients, watchers)
			if watchers == 1 {
				name = fmt.Sprintf("%d clients, 1 watcher", clients)
			}
			phases = append(phases, phase{name, false, c.run, crowdRows})
		}
	}
	return append(phases, k0smotronPhases(n)...)
}

// share returns the number of clients for a number of the full size.
func (s sizes) share(clients int) int { return max(1, clients*s.Clients/slices.Max(crowds)) }

// crowd are clients, each with a connection, an object of 1 KB that it replaces and reads in turns, and watchers of all these objects.
type crowd struct {
	clients, watchers, writes int
	prefix                    string
}

// record is what clients have written, by the writes' numbers.
type record struct {
	sent         []atomic.Int64 // when, in nanoseconds since 1970
	acknowledged []atomic.Bool
	failed       atomic.Int64
	first        atomic.Pointer[string] // error
}

func newRecord(n int) *record {
	return &record{sent: make([]atomic.Int64, n), acknowledged: make([]atomic.Bool, n)}
}

// make sends the write of a number, and returns how long it took, or an error.
func (w *record) make(ctx context.Context, c *client, number int, r request) (time.Duration, error) {
	began := time.Now()
	w.sent[number].Store(began.UnixNano())
	if err := c.do(ctx, r); err != nil {
		w.failed.Add(1)
		text := err.Error()
		w.first.CompareAndSwap(nil, &text)
		return 0, err
	}
	w.acknowledged[number].Store(true)
	return time.Since(began), nil
}

// count returns how many writes were acknowledged.
func (w *record) count() (n int) {
	for i := range w.acknowledged {
		if w.acknowledged[i].Load() {
			n++
		}
	}
	return n
}

// numberMark precedes the number of a write, eight digits, in the object.
const numberMark = `"write":"`

// numberedConfigMap returns the JSON of a ConfigMap with the number of a write, and padding.
func numberedConfigMap(name, labels string, number, size int) []byte {
	const tail = `"}}`
	head := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{`+numberMark+`%08d","text":"`, name, labels, number)
	return append(append([]byte(head), bytes.Repeat([]byte("x"), max(0, size-len(head)-len(tail)))...), tail...)
}

// run makes all writes, and waits for their events.
func (c crowd) run(s *session, ctx context.Context) (result, error) {
	all, err := s.dialer.dialAll(ctx, c.clients)
	if err != nil {
		return result{}, err
	}
	defer all.close()
	objects := configMaps(c.prefix)
	body := func(object, number int) []byte { return numberedConfigMap(objects.name(object), "", number, 1024) }
	// The first writes, which are not measured, create the objects.
	w := newRecord(c.clients + c.writes)
	for i := range c.clients {
		create := post(objects.collection, body(i, i))
		w.acknowledged[i].Store(true)
		if err := persist(ctx, func() error { return all[i].do(ctx, create) }); err != nil && !isStatus(err, http.StatusConflict) {
			return result{}, err
		}
	}
	return witnessed(s, ctx, w, c.clients, func() (clients, error) { return s.dialer.dialAll(ctx, c.watchers) }, objects.collection+"?", func(m *sample) []time.Duration {
		var next atomic.Int64
		next.Store(int64(c.clients))
		writes, reads := make([][]time.Duration, len(all)), make([][]time.Duration, len(all))
		_ = all.each(func(i int, client *client) error {
			for ctx.Err() == nil {
				number := int(next.Add(1)) - 1
				if number >= len(w.sent) {
					return nil
				}
				if took, err := w.make(ctx, client, number, put(objects.path(i), body(i, number))); err == nil {
					writes[i] = append(writes[i], took)
				}
				began := time.Now()
				if client.do(ctx, get(objects.path(i))) == nil {
					reads[i] = append(reads[i], time.Since(began))
				}
			}
			return nil
		})
		m.latencies = slices.Concat(writes...)
		return slices.Concat(reads...)
	})
}

// each calls act for all clients at once, and returns the first error.
func (all clients) each(act func(i int, c *client) error) error {
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, c := range all {
		running.Go(func() { errs[i] = act(i, c) })
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
