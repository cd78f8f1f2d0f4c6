package sqlstore

import (
	"slices"
	"sync"
)

// maxQueue limits how many changes are queued for one subscription. For their size, see memory.
const maxQueue = 8192

// Subscription receives the changes of one collection, one object, or several collections.
type Subscription struct {
	// Start is the revision after which the subscription receives all changes. Earlier ones must be replayed from the log.
	Start int64

	follower *Follower
	hub      *hub
	interest
	resources []Resource // whose topics have it; changed with hub.telling held
	offered   int64      // the revision of the last change it was offered, at first Start; used by topic

	mu    sync.Mutex
	queue []*Change
	err   error
	wake  chan struct{} // buffered, one
}

// Subscribe starts to receive changes of the objects of resource whose keys begin with prefix, or of the one object with that key
// if prefix is not empty and does not end in "/". A change may be left out if neither the version it made nor the one it replaced
// passes the terms. Call Subscribe once; Follower.Close ends it.
func (f *Follower) Subscribe(resource Resource, prefix string, terms ...Term) *Subscription {
	sub := f.subscription(interest{resource, prefix, boundTerms(terms)})
	sub.Start = sub.Also(resource)
	return sub
}

// SubscribeSeveral is Subscribe for whole collections, which Also adds: at first there are none.
func (f *Follower) SubscribeSeveral() *Subscription { return f.subscription(interest{}) }

func (f *Follower) subscription(i interest) *Subscription {
	sub := &Subscription{follower: f, hub: f.store.hub, interest: i, wake: make(chan struct{}, 1)}
	f.sub.Store(sub)
	if f.ended.Load() {
		sub.end(ErrSlow)
	}
	return sub
}

// Also adds a collection to a subscription. The subscription receives all changes of it after the revision that Also returns, and perhaps
// some before.
func (sub *Subscription) Also(resource Resource) (start int64) {
	h := sub.hub
	h.telling.Lock()
	defer h.telling.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.topics == nil:
		sub.end(ErrClosed)
	case !slices.Contains(sub.resources, resource):
		if len(sub.resources) == 0 {
			sub.offered = h.at() // what is undelivered is not for it
		}
		if h.topics[resource] == nil {
			h.topics[resource] = newTopic()
		}
		h.topics[resource].add(sub)
		sub.resources = append(sub.resources, resource)
	}
	return h.at()
}

// Except removes a collection that Also has added. Changes that are queued already stay.
func (sub *Subscription) Except(resource Resource) {
	sub.hub.telling.Lock()
	defer sub.hub.telling.Unlock()
	if i := slices.Index(sub.resources, resource); i >= 0 {
		sub.resources = slices.Delete(sub.resources, i, i+1)
		sub.hub.remove(resource, sub)
	}
}

// Close ends the subscription and releases what is queued.
func (sub *Subscription) Close() {
	sub.hub.telling.Lock()
	for _, resource := range sub.resources {
		sub.hub.remove(resource, sub)
	}
	sub.resources = nil
	sub.hub.telling.Unlock()
	sub.end(ErrClosed)
	sub.drop()
}

// remove removes a subscription from the topic of a resource. h.telling is held.
func (h *hub) remove(resource Resource, sub *Subscription) {
	topic := h.topics[resource]
	if topic == nil {
		return
	}
	if topic.remove(sub); len(topic.all) == 0 {
		h.mu.Lock()
		delete(h.topics, resource)
		h.mu.Unlock()
	}
}

// push queues c. It never waits for the reader.
func (sub *Subscription) push(c *Change) {
	if !sub.enqueue(c) {
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
	wake(sub.wake)
	return true
}

// end ends the subscription with err. After ErrSlow, the reader does not even get what is queued.
func (sub *Subscription) end(err error) {
	sub.mu.Lock()
	if sub.err == nil {
		sub.err = err
	}
	wake(sub.wake)
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

// Ready receives a value when Drain has something to return.
func (sub *Subscription) Ready() <-chan struct{} { return sub.wake }

// Drain returns the changes since the last call, which may be none. Each must be released with Follower.Done. Drain returns
// ErrSlow or ErrClosed when there will be no more.
func (sub *Subscription) Drain() ([]*Change, error) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if len(sub.queue) > 0 {
		changes := sub.queue
		sub.queue = nil
		if sub.err != nil {
			wake(sub.wake)
		}
		return changes, nil
	}
	return nil, sub.err
}

// Progress returns the revision up to which the subscription has received all changes, or false while some are waiting to be
// read.
func (sub *Subscription) Progress() (int64, bool) {
	revision := max(sub.hub.delivered.Load(), sub.Start) // before the queue is looked at
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return revision, len(sub.queue) == 0 && sub.err == nil
}
