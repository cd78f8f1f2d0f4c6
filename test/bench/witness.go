package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// witness is a watch of a collection that notes which writes it has heard of. It is resumed when it ends.
type witness struct {
	path    string // of the collection, with a query to continue
	record  *record
	skipped int // writes before the watch

	heard             []bool // by number
	lags              []time.Duration
	count             atomic.Int64 // of heard
	resumed, relisted int
}

// hear notes the write of which an object tells, if it is one. deleted are those objects whose last write was their deletion.
func (w *witness) hear(object []byte, deleted bool, at time.Time) {
	_, rest, found := bytes.Cut(object, []byte(numberMark))
	if !found || len(rest) < 8 {
		return
	}
	number, err := strconv.Atoi(string(rest[:8]))
	if err != nil {
		return
	}
	if deleted {
		number++
	}
	if number < w.skipped || number >= len(w.heard) || w.heard[number] {
		return
	}
	w.heard[number] = true
	w.lags = append(w.lags, time.Duration(at.UnixNano()-w.record.sent[number].Load()))
	w.count.Add(1)
}

// watch hears of all writes after a resourceVersion until ctx ends. begun is called when the first watch has begun.
func (w *witness) watch(ctx context.Context, c *client, version []byte, begun func()) {
	for ctx.Err() == nil {
		if version == nil { // an informer would list
			if c.do(ctx, get(strings.TrimRight(w.path, "?&"))) == nil {
				at := time.Now()
				for object := range bytes.SplitSeq(c.answer.Bytes(), []byte(`"metadata":{"name"`)) {
					w.hear(object, false, at)
				}
				version, _ = resourceVersion(c.answer.Bytes())
			}
		}
		if version != nil {
			version = w.follow(ctx, c, version, begun)
		}
		if ctx.Err() == nil {
			w.resumed++
			_ = wait(ctx, followPause)
		}
	}
}

// follow watches from a resourceVersion on. It returns the one at which the watch can be resumed, nil if it can't.
func (w *witness) follow(ctx context.Context, c *client, version []byte, begun func()) []byte {
	response, err := c.send(ctx, get(w.path+"watch=1&resourceVersion="+string(version)))
	if isStatus(err, 410) {
		w.relisted++
		return nil
	}
	if err != nil {
		return version
	}
	defer response.Body.Close()
	begun()
	events := newEventReader(response.Body, mediaJSON, 64<<10)
	for {
		event, err := events.next()
		if err != nil {
			return version
		}
		at := time.Now()
		if bytes.HasPrefix(event, []byte(`{"type":"ERROR"`)) {
			if bytes.Contains(event, []byte(`"code":410`)) {
				w.relisted++
				return nil
			}
			return version
		}
		w.hear(event, bytes.HasPrefix(event, []byte(`{"type":"DELETED"`)), at)
		if newer, err := resourceVersion(event); err == nil {
			version = newer
		}
	}
}

// deliveryTimeout is how long watches may deliver nothing before the rest of their events counts as lost.
const deliveryTimeout = 15 * time.Second

// witnessed measures act, which makes all writes but the first ones while watchers watch, and the time until these have heard of all. An
// operation is a write; act notes the writes' latencies, and returns those of the reads.
func witnessed(s *session, ctx context.Context, w *record, first int, dial func() (clients, error), path string, act func(m *sample) []time.Duration) (result, error) {
	watchers, err := dial()
	if err != nil {
		return result{}, err
	}
	defer watchers.close()
	version, err := s.newest(ctx, strings.SplitN(path, "?", 2)[0])
	if err != nil {
		return result{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var running, begun sync.WaitGroup
	witnesses := make([]*witness, len(watchers))
	for i, c := range watchers {
		witness := &witness{path: path, record: w, skipped: first, heard: make([]bool, len(w.sent))}
		witnesses[i] = witness
		begun.Add(1)
		running.Go(func() { witness.watch(watching, c, version, sync.OnceFunc(begun.Done)) })
	}
	begun.Wait()
	var m sample
	var reads []time.Duration
	var wall time.Duration
	err = s.observe(&m, func() error {
		began := time.Now()
		reads = act(&m)
		wall = time.Since(began)
		return delivered(ctx, witnesses, w.count()-first)
	})
	stop()
	running.Wait()
	if err != nil {
		return result{}, err
	}
	return witnessedResult(m, wall, w, first, witnesses, reads), ctx.Err()
}

// delivered waits until each watch has heard of so many writes, or until none hears of more.
func delivered(ctx context.Context, witnesses []*witness, each int) error {
	total := func() (n int64) {
		for _, w := range witnesses {
			n += w.count.Load()
		}
		return n
	}
	last, at := total(), time.Now()
	for last < int64(each*len(witnesses)) && time.Since(at) < deliveryTimeout {
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
		if now := total(); now != last {
			last, at = now, time.Now()
		}
	}
	return nil
}

func witnessedResult(m sample, wall time.Duration, w *record, first int, witnesses []*witness, reads []time.Duration) result {
	acknowledged := w.count() - first
	m.wall = wall
	r := m.result(len(witnesses), max(1, acknowledged))
	r.Seconds = figure(wall.Seconds())
	var lags []time.Duration
	for _, witness := range witnesses {
		lags = append(lags, witness.lags...)
		for number, heard := range witness.heard {
			if heard && w.acknowledged[number].Load() {
				r.Events++
			}
		}
		r.Resumed += witness.resumed
		r.Relisted += witness.relisted
	}
	slices.Sort(lags)
	slices.Sort(reads)
	r.Lag, r.ReadP99 = milliseconds(quantile(lags, 99)), milliseconds(quantile(reads, 99))
	r.Succeeded = 100 * figure(acknowledged) / figure(max(1, acknowledged+int(w.failed.Load())))
	r.Delivered = 100 * figure(r.Events) / figure(max(1, acknowledged*len(witnesses)))
	if text := w.first.Load(); text != nil {
		r.FirstError = fmt.Sprintf("%.300s", *text)
	}
	return r
}
