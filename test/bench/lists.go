package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
)

// list sends the list request n times, from that many clients at once.
func list(r request, clients, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		m, length, err := s.list(ctx, r, clients, n)
		result := m.result(clients, n)
		result.Bytes = length
		return result, err
	}
}

// listFromCold lists n times in sequence, and reports the CPU time of the first list separately: its objects have not been read
// in that format before.
func listFromCold(r request, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		m, length, err := s.list(ctx, r, 1, 1)
		first := m.cpu
		if err == nil && n > 1 {
			var more sample
			more, _, err = s.list(ctx, r, 1, n-1)
			m.add(more)
		}
		result := m.result(1, n)
		result.FirstCPU, result.Bytes = microseconds(first), length
		return result, err
	}
}

// list also returns the length of a response.
func (s *session) list(ctx context.Context, r request, clients, n int) (sample, int64, error) {
	var length atomic.Int64
	m, err := s.sample(ctx, clients, n, func(ctx context.Context, c *client, _ int) error {
		n, err := c.discard(ctx, r)
		length.Store(n)
		return err
	})
	return m, length.Load(), err
}

// labelled returns the path of the objects in a collection that a label selector selects.
func labelled(collection, selector string) string {
	return collection + "?labelSelector=" + url.QueryEscape(selector)
}

// onNode returns the path of a node's pods.
func onNode(node int) string {
	return podsPath + "?fieldSelector=" + url.QueryEscape("spec.nodeName="+nodeName(node))
}

// walk lists a collection in at most that many chunks; the whole walk is one operation.
func walk(r request, limit, chunks, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		var length int64
		result, err := s.load(ctx, 1, n, func(ctx context.Context, c *client, _ int) (err error) {
			length, _, err = c.walk(ctx, r, limit, chunks)
			return err
		})
		result.Bytes = length
		return result, err
	}
}

// walkAll lists all of a collection once, in chunks of 500.
func walkAll(r request, objects int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		return s.load(ctx, 1, 1, func(ctx context.Context, c *client, _ int) error {
			_, next, err := c.walk(ctx, r, 500, objects)
			if err == nil && next != "" {
				err = errors.New("a list has more chunks than objects")
			}
			return err
		})
	}
}

// walk returns the length of the chunks, and the token of the one after them, "" if there is none.
func (c *client) walk(ctx context.Context, r request, limit, chunks int) (length int64, next string, err error) {
	collection := r.path
	for range chunks {
		r.path = fmt.Sprintf("%s?limit=%d&continue=%s", collection, limit, url.QueryEscape(next))
		if err := c.do(ctx, r); err != nil {
			return length, next, err
		}
		length += int64(c.answer.Len())
		if next, err = continueToken(c.answer.Bytes()); err != nil || next == "" {
			return length, next, err
		}
	}
	return length, next, nil
}

// continueToken returns the token of the next page, or "" after the last one. A list's metadata is before or after its items,
// so the items need not be parsed.
func continueToken(list []byte) (string, error) {
	const key = `"metadata":`
	for _, at := range []int{bytes.Index(list, []byte(key)), bytes.LastIndex(list, []byte(key))} {
		if at < 0 {
			return "", fmt.Errorf("a response without metadata: %.200s", list)
		}
		var metadata struct {
			Continue string `json:"continue"`
			Name     string `json:"name"` // only items have a name
		}
		if err := json.NewDecoder(bytes.NewReader(list[at+len(key):])).Decode(&metadata); err != nil {
			return "", err
		}
		if metadata.Name == "" {
			return metadata.Continue, nil
		}
	}
	return "", fmt.Errorf("found no metadata in the response: %.200s", list)
}
