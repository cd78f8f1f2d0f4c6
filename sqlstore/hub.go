package sqlstore

import (
	"context"
	"sync"
	"sync/atomic"
)

// hub passes each change, once and in order, to the subscriptions it concerns.
type hub struct {
	cache *cache // gets the changes first

	position atomic.Int64 // all changes up to here have been passed on; set with mu held

	mu        sync.Mutex
	moved     chan struct{} // closed when position changes; nil if there are no waiters
	topics    map[Resource]*topic
	receivers []*Subscription // of the current change; kept to reuse the memory
	closed    bool
	behind    chan struct{} // buffered, one: wakes the tail, since rows may be missing
	memory    *memory
}

func newHub(position int64, cache *cache, m *memory) *hub {
	h := &hub{cache: cache, memory: m, topics: map[Resource]*topic{}, behind: make(chan struct{}, 1)}
	h.position.Store(position)
	return h
}

// offer passes on the changes of the revisions after from and up to to. If
// earlier ones are missing, it wakes the tail to read them all from the log.
func (h *hub) offer(from, to int64, changes []*Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if from > h.at() {
		h.wakeTail()
		return
	}
	h.cache.apply(to, changes)
	for _, c := range changes {
		topic := h.topics[c.Resource]
		if topic == nil || c.Record.Revision <= h.at() {
			continue
		}
		h.receivers = topic.receivers(c, h.receivers[:0])
		if c.Watchers = len(h.receivers); c.Watchers == 0 {
			continue
		}
		c.holders.Store(1) // the hub, until all subscriptions hold it
		h.memory.held.Add(c.size())
		for _, sub := range h.receivers {
			sub.push(c)
		}
		c.release(h.memory)
	}
	clear(h.receivers[:cap(h.receivers)])
	h.memory.hold(0)
	h.moveTo(to)
}

// skip continues after revision to, without the changes before it.
// Subscriptions can no longer get those, so all of them end.
func (h *hub) skip(to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cache.reset(to)
	for _, topic := range h.topics {
		for sub := range topic.all {
			sub.end(ErrSlow)
		}
	}
	h.moveTo(to)
}

func (h *hub) moveTo(position int64) {
	h.position.Store(max(h.at(), position))
	if h.moved != nil {
		close(h.moved)
		h.moved = nil
	}
}

// Await waits until the store has reached revision. If ctx ends first, it returns the cause.
func (s *Store) Await(ctx context.Context, revision int64) error {
	for {
		moved := s.hub.before(revision)
		if moved == nil {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// before returns a channel that is closed when the position changes, or nil if the position has reached revision.
func (h *hub) before(revision int64) <-chan struct{} {
	if h.at() >= revision {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at() >= revision {
		return nil
	}
	if h.moved == nil {
		h.moved = make(chan struct{})
	}
	return h.moved
}

func (h *hub) wakeTail() {
	select {
	case h.behind <- struct{}{}:
	default:
	}
}

func (h *hub) at() int64 { return h.position.Load() }

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, topic := range h.topics {
		for sub := range topic.all {
			sub.end(ErrClosed)
		}
	}
	h.topics = nil
}

// maxQueue limits how many changes are queued for one subscription. For their
// size, see memory.
const maxQueue = 8192

// Subscription receives the changes of one collection or one object.
type Subscription struct {
	// Start is the revision after which the subscription receives all changes.
	// Earlier ones must be replayed from the log.
	Start int64

	follower *Follower
	hub      *hub
	interest
	offered int64 // the revision of the last change it was offered; used by topic

	mu    sync.Mutex
	queue []*Change
	err   error
	wake  chan struct{} // buffered, one
}

// Subscribe starts to receive changes of the objects of resource whose keys
// begin with prefix, or of the one object with that key if prefix is not empty
// and does not end in "/". A change may be left out if neither the version it
// made nor the one it replaced passes the terms. Call Subscribe once;
// Follower.Close ends it.
func (f *Follower) Subscribe(resource Resource, prefix string, terms ...Term) *Subscription {
	h := f.store.hub
	sub := &Subscription{follower: f, hub: h, interest: interest{resource, prefix, boundTerms(terms)}, wake: make(chan struct{}, 1)}
	f.sub.Store(sub)
	if f.ended.Load() {
		sub.end(ErrSlow)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	sub.Start = h.at()
	if h.closed {
		sub.end(ErrClosed)
		return sub
	}
	if h.topics[resource] == nil {
		h.topics[resource] = newTopic()
	}
	h.topics[resource].add(sub)
	return sub
}

// Close ends the subscription and releases what is queued.
func (sub *Subscription) Close() {
	h := sub.hub
	h.mu.Lock()
	if topic := h.topics[sub.resource]; topic != nil {
		topic.remove(sub)
		if len(topic.all) == 0 {
			delete(h.topics, sub.resource)
		}
	}
	h.mu.Unlock()
	sub.end(ErrClosed)
	sub.drop()
}

// push queues c. It never waits for the reader.
func (sub *Subscription) push(c *Change) {
	if !sub.enqueue(c) {
		sub.follower.ended.Store(true)
		sub.follower.end()
	}
}

// enqueue returns false if the queue is full.
func (sub *Subscription) enqueue(c *Change) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.err != nil {
		return true
	}
	if len(sub.queue) >= maxQueue {
		return false
	}
	sub.queue = append(sub.queue, c)
	sub.follower.receive(c)
	sub.signal()
	return true
}

// end ends the subscription with err. After ErrSlow, the reader does not even
// get what is queued.
func (sub *Subscription) end(err error) {
	sub.mu.Lock()
	if sub.err == nil {
		sub.err = err
	}
	sub.signal()
	sub.mu.Unlock()
	if err == ErrSlow {
		sub.drop()
	}
}

func (sub *Subscription) drop() {
	sub.mu.Lock()
	dropped := sub.queue
	sub.queue = nil
	sub.mu.Unlock()
	for _, c := range dropped {
		sub.follower.Done(c)
	}
}

func (sub *Subscription) signal() {
	select {
	case sub.wake <- struct{}{}:
	default:
	}
}

// Ready receives a value when Drain has something to return.
func (sub *Subscription) Ready() <-chan struct{} { return sub.wake }

// Drain returns the changes since the last call, which may be none. Each must
// be released with Follower.Done. Drain returns ErrSlow or ErrClosed when there
// will be no more.
func (sub *Subscription) Drain() ([]*Change, error) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if len(sub.queue) > 0 {
		changes := sub.queue
		sub.queue = nil
		if sub.err != nil {
			sub.signal()
		}
		return changes, nil
	}
	return nil, sub.err
}

// Progress returns the revision up to which the subscription has received all
// changes, or false while some are waiting to be read.
func (sub *Subscription) Progress() (int64, bool) {
	sub.hub.mu.Lock()
	defer sub.hub.mu.Unlock()
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.hub.at(), len(sub.queue) == 0 && sub.err == nil
}
