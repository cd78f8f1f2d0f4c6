package sqlstore

import (
	"context"
	"sync"
	"sync/atomic"
)

// hub passes each change, once and in order, to the subscriptions it concerns.
type hub struct {
	cache    *cache         // gets the changes first
	onChange func(Resource) // Options.OnChange

	position atomic.Int64 // all changes up to here have been passed on; set with mu held

	mu        sync.Mutex
	moved     chan struct{}                     // closed when position changes; nil if there are no waiters
	topics    map[Resource]*topic               // nil once the hub is closed
	receivers []*Subscription                   // of the current change; kept to reuse the memory
	waiting   map[Resource]map[*func()]struct{} // see OnNext
	behind    chan struct{}                     // buffered, one: wakes the tail, since rows may be missing
	memory    *memory
}

func newHub(position int64, cache *cache, onChange func(Resource), m *memory) *hub {
	h := &hub{cache: cache, onChange: onChange, memory: m, topics: map[Resource]*topic{}, waiting: map[Resource]map[*func()]struct{}{}, behind: make(chan struct{}, 1)}
	h.position.Store(position)
	return h
}

// offer passes on the changes of the revisions after from and up to to. If earlier ones are missing, it wakes the tail to read
// them all from the log.
func (h *hub) offer(from, to int64, changes []*Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if from > h.at() {
		wake(h.behind)
		return
	}
	h.cache.apply(to, changes)
	for _, c := range changes {
		if c.Record.Revision <= h.at() {
			continue
		}
		h.onChange(c.Resource)
		if len(h.waiting) > 0 {
			h.wake(c.Resource)
		}
		topic := h.topics[c.Resource]
		if topic == nil {
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

// skip continues after revision to, without the changes before it. Subscriptions can no longer get those, so all of them end.
func (h *hub) skip(to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cache.reset(to)
	for _, topic := range h.topics {
		for sub := range topic.all {
			sub.end(ErrSlow)
		}
	}
	for resource := range h.waiting {
		h.wake(resource)
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

// wake wakes who waits for c, which has a buffer of one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (h *hub) at() int64 { return h.position.Load() }

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topic := range h.topics {
		for sub := range topic.all {
			sub.end(ErrClosed)
		}
	}
	h.topics = nil
	clear(h.waiting)
}
