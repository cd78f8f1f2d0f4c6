package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// watchWriters is how many clients make the changes that the watchers see.
const watchWriters = 4

// watch opens the watchers, creates ConfigMaps and waits until every watcher has seen them all. An operation is one event
// delivered to one watcher; the creates' own cost is part of it. The latency is from sending the create to seeing the event.
func (s *session) watch(ctx context.Context) (result, error) {
	watchers, writers := s.sizes.Watchers, watchWriters
	listeners, err := s.dialer.dialAll(ctx, watchers)
	if err != nil {
		return result{}, err
	}
	defer listeners.close()
	senders, err := s.dialer.dialAll(ctx, writers)
	if err != nil {
		return result{}, err
	}
	defer senders.close()
	revision, err := revisionOf(ctx, senders[0])
	if err != nil {
		return result{}, err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sent := make([]time.Time, s.sizes.Events)
	seen := make([][]time.Time, watchers) // by watcher and event
	var running sync.WaitGroup
	for i, c := range listeners {
		seen[i] = make([]time.Time, s.sizes.Events)
		path := configMapsPath + "?watch=1&resourceVersion=" + revision
		response, err := c.send(ctx, http.MethodGet, path, mediaJSON, nil) // returns once the server has begun to answer
		if err != nil {
			cancel(err)
			break
		}
		running.Go(func() {
			if err := readEvents(response.Body, seen[i]); err != nil {
				cancel(fmt.Errorf("watcher %d: %w", i, err))
			}
		})
	}
	var m sample
	err = s.observe(&m, func() error {
		next := make(chan int)
		for _, c := range senders {
			running.Go(func() {
				for i := range next {
					body := configMap(numbered(watchPrefix, i), 0)
					sent[i] = time.Now()
					if err := c.do(ctx, http.MethodPost, configMapsPath, mediaJSON, body); err != nil {
						cancel(err)
					}
				}
			})
		}
		for i := range sent {
			select {
			case next <- i:
			case <-ctx.Done():
			}
		}
		close(next)
		running.Wait()
		return context.Cause(ctx)
	})
	if err != nil {
		return result{}, err
	}
	for _, times := range seen {
		for i, at := range times {
			m.latencies = append(m.latencies, at.Sub(sent[i]))
		}
	}
	return m.result(watchers, len(m.latencies)), nil
}

// watchPrefix begins the names of the ConfigMaps that the watchers look for.
const watchPrefix = "watched"

// readEvents notes when each of the events came and returns once it has them all. It finds the object's number in the
// event's text, since decoding would cost the machine more than the server's work that is measured.
func readEvents(stream io.ReadCloser, seen []time.Time) (err error) {
	defer func() { err = errors.Join(err, stream.Close()) }()
	lines := bufio.NewReaderSize(stream, 64<<10)
	mark := []byte(`"name":"` + watchPrefix + "-")
	for missing := len(seen); missing > 0; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("the watch ended with %d events missing: %w", missing, err)
		}
		_, rest, found := bytes.Cut(line, mark)
		if !found || len(rest) < 6 {
			return fmt.Errorf("an event of no expected object: %.300s", line)
		}
		i, err := strconv.Atoi(string(rest[:6]))
		if err != nil || i >= len(seen) || !seen[i].IsZero() {
			return fmt.Errorf("an event that was seen before or not expected: %.300s", line)
		}
		seen[i] = time.Now()
		missing--
	}
	return nil
}

// revisionOf returns the current resourceVersion of the ConfigMaps.
func revisionOf(ctx context.Context, c *client) (string, error) {
	if err := c.do(ctx, http.MethodGet, configMapsPath+"?limit=1", mediaJSON, nil); err != nil {
		return "", err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(c.answer.Bytes(), &list); err != nil {
		return "", err
	}
	if list.Metadata.ResourceVersion == "" {
		return "", fmt.Errorf("a list without resourceVersion: %.300s", c.answer.Bytes())
	}
	return list.Metadata.ResourceVersion, nil
}
