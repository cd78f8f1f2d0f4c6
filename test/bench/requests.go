package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
)

// operation is the body of a phase.
type operation = func(*session, context.Context) (result, error)

// createConfigMaps creates ConfigMaps named after the prefix.
func createConfigMaps(prefix string, clients, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		if err := s.makeNamespace(ctx); err != nil {
			return result{}, err
		}
		bodies := make([][]byte, n)
		for i := range bodies {
			bodies[i] = configMap(numbered(prefix, i), 0)
		}
		return s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, http.MethodPost, configMapsPath, mediaJSON, bodies[i])
		})
	}
}

// updateConfigMaps replaces each of the ConfigMaps that createConfigMaps made, without a precondition.
func updateConfigMaps(prefix string, clients, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		bodies := make([][]byte, n)
		for i := range bodies {
			bodies[i] = configMap(numbered(prefix, i), 1)
		}
		return s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, http.MethodPut, configMapsPath+"/"+numbered(prefix, i), mediaJSON, bodies[i])
		})
	}
}

// getConfigMaps reads the ConfigMaps that createConfigMaps made.
func getConfigMaps(prefix string, clients, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		return s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, http.MethodGet, configMapsPath+"/"+numbered(prefix, i%s.sizes.Writes), mediaJSON, nil)
		})
	}
}

// createPods creates the pods that the lists list.
func createPods(clients int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		body, err := podBodies(s.sizes.selected())
		if err != nil {
			return result{}, err
		}
		var bytes atomic.Int64
		r, err := s.load(ctx, clients, s.sizes.Pods, func(ctx context.Context, c *client, i int) error {
			err := c.do(ctx, http.MethodPost, podsPath, mediaJSON, body(i))
			bytes.Store(int64(c.answer.Len()))
			return err
		})
		r.Bytes = bytes.Load()
		return r, err
	}
}

// listPods lists all pods, or those that the selector selects, each client n/clients times.
func listPods(accept, selector string, clients, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		path := podsPath
		if selector != "" {
			path += "?labelSelector=" + url.QueryEscape(selector)
		}
		var bytes atomic.Int64
		r, err := s.load(ctx, clients, n, func(ctx context.Context, c *client, _ int) error {
			length, err := c.discard(ctx, path, accept)
			bytes.Store(length)
			return err
		})
		r.Bytes = bytes.Load()
		return r, err
	}
}

// walkPods lists all pods in chunks; the whole walk is one operation.
func walkPods(limit, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		var bytes int64
		r, err := s.load(ctx, 1, n, func(ctx context.Context, c *client, _ int) error {
			bytes = 0
			next := ""
			for {
				path := fmt.Sprintf("%s?limit=%d&continue=%s", podsPath, limit, url.QueryEscape(next))
				if err := c.do(ctx, http.MethodGet, path, mediaJSON, nil); err != nil {
					return err
				}
				bytes += int64(c.answer.Len())
				var err error
				if next, err = continueToken(c.answer.Bytes()); err != nil || next == "" {
					return err
				}
			}
		})
		r.Bytes = bytes
		return r, err
	}
}

// continueToken returns the token of the next page and "" after the last one. A list's metadata comes before its items,
// or else after them, so it is not necessary to read these.
func continueToken(list []byte) (string, error) {
	const key = `"metadata":`
	for _, at := range []int{bytes.Index(list, []byte(key)), bytes.LastIndex(list, []byte(key))} {
		if at < 0 {
			return "", fmt.Errorf("an answer without metadata: %.200s", list)
		}
		var metadata struct {
			Continue string `json:"continue"`
			Name     string `json:"name"` // only items have one
		}
		if err := json.NewDecoder(bytes.NewReader(list[at+len(key):])).Decode(&metadata); err != nil {
			return "", err
		}
		if metadata.Name == "" {
			return metadata.Continue, nil
		}
	}
	return "", fmt.Errorf("an answer whose metadata was not found: %.200s", list)
}

// numbered returns the name of the ith object of a phase.
func numbered(prefix string, i int) string { return fmt.Sprintf("%s-%06d", prefix, i) }
