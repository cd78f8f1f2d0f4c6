package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// flooders is how many clients the cluster has that floods.
	flooders = 32
	// fleetForks is how many forks are measured, one after the other.
	fleetForks = 5
	// fleetOriginal is the cluster that is forked.
	fleetOriginal = "original"
	// fleetSmall has a tenth of the objects.
	fleetSmall = "small"
	// fleetWrites is how many writes a second the original gets.
	fleetWrites = 50
)

// filled creates a cluster with n objects, and returns a client of it.
func (s *session) filled(ctx context.Context, name, spec string, n int) (*client, error) {
	admin, err := s.dialer.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer clients{admin}.close()
	if err := made(ctx, admin, name, spec); err != nil {
		return nil, err
	}
	first, err := enter(ctx, admin, name)
	if err != nil {
		return nil, err
	}
	var next atomic.Int64
	failed := make([]error, fleetClients)
	var filling sync.WaitGroup
	for worker := range fleetClients {
		filling.Go(func() {
			// One connection has as many streams as there are workers, each with a buffer of its own.
			c := &client{http: first.http, base: first.base, token: first.token}
			for i := next.Add(1) - 1; i < int64(n) && failed[worker] == nil; i = next.Add(1) - 1 {
				failed[worker] = c.do(ctx, post(hostedMaps.collection, hostedMaps.body(hostedMaps.name(int(i)), 0)))
			}
		})
	}
	filling.Wait()
	return first, errors.Join(failed...)
}

// writeBesideFlood measures all clusters that are awake while another one gets as many requests as it can take: writes of new objects, and
// lists of all of them.
func (s *session) writeBesideFlood(ctx context.Context) (result, error) {
	first, err := s.filled(ctx, "flood", "", s.sizes.Objects/fleetTenth)
	if err != nil {
		return result{}, err
	}
	defer clients{first}.close()
	flooding, stop := context.WithCancel(ctx)
	defer stop()
	var sent atomic.Int64
	var flood sync.WaitGroup
	for range flooders {
		flood.Go(func() {
			c := &client{http: first.http, base: first.base, token: first.token}
			for flooding.Err() == nil {
				n := sent.Add(1)
				r := post(hostedMaps.collection, hostedMaps.body(fmt.Sprintf("flood-%d", n), 0))
				if n%2 == 0 {
					r = get(hostedMaps.collection)
				}
				_, _ = c.discard(flooding, r) // it may be refused
			}
		})
	}
	before := sent.Load()
	r, err := s.writeOnce(ctx, s.fleet.awake, s.sizes.Duration)
	r.Writes = figure(sent.Load()-before) / r.Seconds
	stop()
	flood.Wait()
	return r, err
}

// writeOriginal writes to the cluster that is forked until ctx ends.
func (s *session) writeOriginal(ctx context.Context) sample {
	m, start := sample{}, time.Now()
	for k := 0; ; k++ {
		due := start.Add(time.Duration(k) * time.Second / fleetWrites)
		if wait(ctx, time.Until(due)) != nil {
			break
		}
		if s.fleet.original.do(ctx, put(hostedMaps.path(k%s.sizes.Objects), hostedMaps.body(hostedMaps.name(k%s.sizes.Objects), k+1))) != nil {
			break
		}
		m.latencies = append(m.latencies, time.Since(due))
	}
	m.wall = time.Since(start)
	return m
}

// writeUnforked measures writes to a large cluster.
func (s *session) writeUnforked(ctx context.Context) (r result, err error) {
	if s.fleet.original, err = s.filled(ctx, fleetOriginal, `"sleep":{"after":"`+fleetNap+`"}`, s.sizes.Objects); err != nil {
		return r, err
	}
	writing, stop := context.WithTimeout(ctx, s.sizes.Duration)
	defer stop()
	var m sample
	err = s.observe(&m, func() error {
		m.latencies = s.writeOriginal(writing).latencies
		return ctx.Err()
	})
	return m.result(1, max(1, len(m.latencies))), err
}

// fork forks the large cluster while somebody writes to it.
func (s *session) fork(ctx context.Context) (result, error) {
	writing, stop := context.WithCancel(ctx)
	defer stop()
	written := make(chan sample, 1)
	go func() { written <- s.writeOriginal(writing) }()
	r, err := s.load(ctx, 1, fleetForks, func(ctx context.Context, c *client, i int) error {
		return s.forkOf(ctx, c, fleetOriginal, fmt.Sprintf("fork-%d", i))
	})
	stop()
	m := <-written
	s.fleet.beside = m.result(1, max(1, len(m.latencies)))
	return r, err
}

// forkOf forks a cluster, and returns when the fork has answered.
func (s *session) forkOf(ctx context.Context, c *client, from, name string) error {
	if err := made(ctx, c, name, `"from":{"cluster":{"name":"`+from+`"}},"sleep":{"after":"`+fleetNap+`"}`); err != nil {
		return err
	}
	one, err := enter(ctx, c, name)
	if err != nil {
		return err
	}
	defer clients{one}.close()
	return one.do(ctx, get(hostedMaps.path(0)))
}

// writtenMeanwhile returns the figures of the writes to the large cluster while it was forked.
func (s *session) writtenMeanwhile(context.Context) (result, error) { return s.fleet.beside, nil }

// sleeper is a cluster that falls asleep soon, with a client.
type sleeper struct {
	name string
	*client
	wakes int // how often it had woken up when it last slept
}

// asleep returns when the cluster sleeps, and has woken up since it last did.
func (t *sleeper) asleep(ctx context.Context, admin *client) error {
	return reached(ctx, admin, t.name, func(s clusterStatus) bool {
		slept := s.Phase == "Asleep" && s.Wakes > t.wakes
		if slept {
			t.wakes = s.Wakes
		}
		return slept
	})
}

// wake sends the request that wakes the cluster.
func (t *sleeper) wake(ctx context.Context) error { return t.do(ctx, get(hostedMaps.path(0))) }

// wakeAlone wakes a cluster with so many objects, one part of those of the large cluster, again and again.
func wakeAlone(part int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		admin, err := s.dialer.dial(ctx)
		if err != nil {
			return result{}, err
		}
		defer clients{admin}.close()
		one := &sleeper{name: fleetOriginal, client: s.fleet.original}
		if part > 1 {
			one.name = fleetSmall
			if one.client, err = s.filled(ctx, one.name, `"sleep":{"after":"`+fleetNap+`"}`, s.sizes.Objects/part); err != nil {
				return result{}, err
			}
			defer clients{one.client}.close()
		}
		var m sample
		for range fleetForks {
			if err := one.asleep(ctx, admin); err != nil {
				return result{}, err
			}
			err := s.observe(&m, func() error {
				began := time.Now()
				err := one.wake(ctx)
				m.latencies = append(m.latencies, time.Since(began))
				return err
			})
			if err != nil {
				return result{}, err
			}
		}
		return m.result(1, fleetForks), nil
	}
}

// wakeMany wakes many clusters at once, each with a tenth of the objects. They are forks, which have been awake before.
func (s *session) wakeMany(ctx context.Context) (result, error) {
	sleeping := make([]*sleeper, s.sizes.Waking)
	defer func() {
		for _, one := range sleeping {
			if one != nil {
				clients{one.client}.close()
			}
		}
	}()
	_, err := s.load(ctx, 4, len(sleeping), func(ctx context.Context, c *client, i int) (err error) {
		name := fmt.Sprintf("waking-%04d", i)
		if err := s.forkOf(ctx, c, fleetSmall, name); err != nil {
			return err
		}
		one, err := enter(ctx, c, name)
		if err == nil {
			sleeping[i] = &sleeper{name: name, client: one}
		}
		return err
	})
	if err != nil {
		return result{}, err
	}
	admin, err := s.dialer.dial(ctx)
	if err != nil {
		return result{}, err
	}
	defer clients{admin}.close()
	for _, one := range sleeping {
		if err := one.asleep(ctx, admin); err != nil {
			return result{}, err
		}
	}
	m, failed := sample{latencies: make([]time.Duration, len(sleeping))}, make([]error, len(sleeping))
	err = s.observe(&m, func() error {
		var waking sync.WaitGroup
		for i, one := range sleeping {
			waking.Go(func() {
				began := time.Now()
				failed[i] = one.wake(ctx)
				m.latencies[i] = time.Since(began)
			})
		}
		waking.Wait()
		return errors.Join(failed...)
	})
	return m.result(len(sleeping), len(sleeping)), err
}
