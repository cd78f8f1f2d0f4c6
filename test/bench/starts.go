package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// podStarts watches all Pods and times their starts as in Kubernetes' SLO: from their creation until a watch reports them
// Running. A creationTimestamp has whole seconds, so a start seems to take up to a second longer than it does. A Pod that is
// deleted before it runs counts with its age.
type podStarts struct {
	watch sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]time.Time // creation times of those not running yet, by uid
	started map[string]struct{}
	before  map[string]struct{} // those that had started when the watch began again
	times   []time.Duration     // since the last take
	after   time.Time           // if not zero, first is closed when a Pod created later runs
	first   chan struct{}
}

// watchStarts watches until the context ends.
func watchStarts(ctx context.Context, c *client) (*podStarts, error) {
	p := &podStarts{}
	p.restart()
	synced := make(chan struct{})
	var once sync.Once
	p.watch.Go(func() {
		c.follow(ctx, "/api/v1/pods", "", p.see, p.restart, func() { once.Do(func() { close(synced) }) })
		clients{c}.close()
	})
	select {
	case <-synced:
		return p, nil
	case <-time.After(readyTimeout):
		return nil, errors.New("the watch of all pods did not begin")
	}
}

// stopped waits until the watch has ended.
func (p *podStarts) stopped() {
	if p != nil {
		p.watch.Wait()
	}
}

// restart forgets which Pods exist: the watch begins again with those that do.
func (p *podStarts) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = p.started
	p.waiting, p.started = map[string]time.Time{}, map[string]struct{}{}
}

func (p *podStarts) see(pod seen) {
	uid := pod.uid()
	p.mu.Lock()
	defer p.mu.Unlock()
	_, started := p.started[uid]
	switch created, waits := p.waiting[uid]; {
	case pod.kind == "DELETED":
		if waits {
			p.times = append(p.times, time.Since(created))
		}
		delete(p.waiting, uid)
		delete(p.started, uid)
	case started:
	case pod.phase() != "Running":
		p.waiting[uid] = time.Unix(pod.created(), 0)
	default:
		p.start(uid, time.Unix(pod.created(), 0))
	}
}

func (p *podStarts) start(uid string, created time.Time) {
	delete(p.waiting, uid)
	p.started[uid] = struct{}{}
	if _, before := p.before[uid]; before {
		return
	}
	p.times = append(p.times, time.Since(created))
	if p.first != nil && created.After(p.after) {
		close(p.first)
		p.first = nil
	}
}

// counts returns how many Pods are running, and how many exist that are not.
func (p *podStarts) counts() (running, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.started), len(p.waiting)
}

// take returns the durations of starts since the last call.
func (p *podStarts) take() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := p.times
	p.times = nil
	return times
}

// firstAfter returns a channel that is closed when a Pod created after the time runs.
func (p *podStarts) firstAfter(after time.Time) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after, p.first = after, make(chan struct{})
	return p.first
}
