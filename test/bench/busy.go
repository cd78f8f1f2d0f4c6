package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// busyPhases measure for how long writes wait while the server is busy with something else: with telling 10,000 watches of one object
// about its changes, or with a cache that gets full.
func busyPhases(n sizes) []phase {
	const alone = "updates at a steady pace"
	shown := []row{p50, p99, longest}
	return []phase{
		{phaseStart, false, (*session).start, nil},
		{"create ConfigMap, 64 clients", false, create(unwatched, 64, max(1, n.Writes/4)), nil},
		{alone + ", first time", false, steadily(nil), nil},
		{alone, false, steadily(nil), shown},
		{"open watches of one object", false, (*session).openCrowd, nil},
		{alone + ", watches of another object open", false, steadily(nil), shown},
		{"the same, that object changes once a second", false, steadily((*session).changeCrowd), shown},
		{"create objects beyond the size of the cache", false, (*session).overfill, []row{perSecond, p50, p99, longest}},
	}
}

// steadyPace is how many updates all clients of steadily make in a second, so few that none waits for another.
const (
	steadyPace    = 100
	steadyClients = 8
)

// steadily updates objects at a steady pace. other runs meanwhile, unless it is nil.
func steadily(other func(*session, context.Context) error) operation {
	return func(s *session, ctx context.Context) (result, error) {
		busy, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		var otherErr error
		if other != nil {
			running.Go(func() { otherErr = other(s, busy) })
		}
		s.revision++
		n := max(1, int(s.sizes.Duration/4*steadyPace/time.Second))
		objects := max(1, s.sizes.Writes/4)
		m, err := s.sampleAt(ctx, steadyPace, steadyClients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, put(unwatched.path(i%objects), unwatched.body(unwatched.name(i%objects), s.revision*n+i)))
		})
		stop()
		running.Wait()
		if err == nil {
			err = otherErr
		}
		return m.result(steadyClients, n), err
	}
}

// crowded is the object that everybody watches.
var crowded = configMaps("crowded")

// openCrowd opens watches of one object, and reads what they receive.
func (s *session) openCrowd(ctx context.Context) (result, error) {
	if _, err := create(crowded, 1, 1)(s, ctx); err != nil {
		return result{}, err
	}
	paths := make([]string, s.sizes.Idlers)
	for i := range paths {
		paths[i] = watchOne(crowded, 0) + "&allowWatchBookmarks=true"
	}
	var err error
	s.opened, err = s.openWatches(context.Background(), crowded.collection, paths, connectionsOf(len(paths), maxStreams))
	for _, stream := range s.opened.streams {
		go io.Copy(io.Discard, stream) //nolint:errcheck // it ends when the watch is closed
	}
	return result{}, err
}

// changeCrowd changes the object that everybody watches once a second until the context ends.
func (s *session) changeCrowd(ctx context.Context) error {
	c, err := s.dialer.dial(ctx)
	if err != nil {
		return err
	}
	defer clients{c}.close()
	for revision := 1; ctx.Err() == nil; revision++ {
		if err := c.do(ctx, put(crowded.path(0), crowded.body(crowded.name(0), revision))); err != nil && ctx.Err() == nil {
			return fmt.Errorf("change the object that everybody watches: %w", err)
		}
		_ = wait(ctx, time.Second)
	}
	return nil
}

// overfill creates objects of two kinds by turns.
func (s *session) overfill(ctx context.Context) (result, error) {
	s.closeWatches()
	body, err := podBodies(s.sizes)
	if err != nil {
		return result{}, err
	}
	filler := configMaps("filler")
	return s.load(ctx, 16, 2*s.sizes.Pods, func(ctx context.Context, c *client, i int) error {
		if i%2 == 0 {
			return c.do(ctx, post(podsPath, body(i/2)))
		}
		return c.do(ctx, post(filler.collection, filler.body(filler.name(i/2), 0)))
	})
}
