package sqlstore

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// hub passes each change, once and in order, to the cache, and then to the subscriptions it concerns.
//
//	offer ──► cache ──► position ──► the writer's answer, reads
//	            └─────► undelivered ──► deliver ──► subscriptions
//
// Writers and reads wait for the cache alone: they must not wait until thousands of watches have been told of a change.
type hub struct {
	cache    *cache
	memory   *memory
	onChange func(Resource) // Options.OnChange

	position  atomic.Int64 // the cache has all changes up to here; set with mu held
	delivered atomic.Int64 // the subscriptions have all changes up to here, never within a transaction; set with mu held

	// telling is held while the subscriptions of a change are looked up. It is taken before mu.
	telling   sync.Mutex
	topics    map[Resource]*topic // nil once the hub is closed; changed with telling and mu held, read with either, the topics with telling
	receivers []*Subscription     // of the current change; kept to reuse the memory
	told      int                 // subscriptions since deliver last gave way
	giveWay   func()              // runtime.Gosched

	mu          sync.Mutex
	moved       chan struct{}                     // closed when position changes; nil if there are no waiters
	waiting     map[Resource]map[*func()]struct{} // see OnNext
	behind      chan struct{}                     // buffered, one: wakes the tail, since rows may be missing
	undelivered []*Change
	bytes       int64      // of undelivered, and of the change that is being delivered
	delivering  bool       // whether there is one
	changed     *sync.Cond // with mu: undelivered, or closing
	closing     bool
	ended       chan struct{} // closed when deliver has returned
}

const (
	// maxUndelivered is how many bytes of changes wait to be delivered before writers wait too.
	maxUndelivered = maxGroupBytes
	// toldAtOnce is how many subscriptions get a change before the goroutines that wait for a processor get their turn. A reader is woken for
	// each, and requests must not queue behind thousands of them. Readers that get their turn sooner send fewer events at once, which costs more.
	toldAtOnce = 256
)

func newHub(position int64, cache *cache, onChange func(Resource), m *memory) *hub {
	h := &hub{
		cache: cache, onChange: onChange, memory: m, topics: map[Resource]*topic{}, waiting: map[Resource]map[*func()]struct{}{},
		behind: make(chan struct{}, 1), ended: make(chan struct{}), giveWay: runtime.Gosched,
	}
	h.changed = sync.NewCond(&h.mu)
	h.position.Store(position)
	h.delivered.Store(position)
	go h.deliver()
	return h
}

// offer passes on the changes of the revisions after from and up to to. If earlier ones are missing, it wakes the tail to read
// them all from the log.
func (h *hub) offer(from, to int64, changes []*Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.bytes > maxUndelivered {
		h.changed.Wait()
	}
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
		if h.topics[c.Resource] != nil {
			h.undelivered = append(h.undelivered, c)
			h.bytes += c.size()
		}
	}
	h.moveTo(to)
}

// deliver passes changes to the subscriptions until the hub is closed.
func (h *hub) deliver() {
	defer close(h.ended)
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		for len(h.undelivered) == 0 {
			h.undelivered = nil
			if h.closing {
				return
			}
			h.changed.Wait()
			h.told = 0
		}
		c := h.undelivered[0]
		h.undelivered, h.delivering = h.undelivered[1:], true
		behind := len(h.undelivered)
		h.mu.Unlock()
		h.tell(c, behind)
		h.mu.Lock()
		h.bytes -= c.size()
		h.delivering = false
		if len(h.undelivered) == 0 {
			h.delivered.Store(h.at())
		} else if !c.followed {
			h.delivered.Store(c.Record.Revision)
		}
		h.changed.Broadcast()
	}
}

// tell passes a change to the subscriptions it concerns. The more changes wait behind it, the more subscriptions it tells at once: if it gave
// way as often as the first time, watches would lag ever more behind requests that keep the processors busy.
func (h *hub) tell(c *Change, behind int) {
	h.telling.Lock()
	h.receivers = h.receivers[:0]
	if topic := h.topics[c.Resource]; topic != nil {
		h.receivers = topic.receivers(c, h.receivers)
	}
	h.telling.Unlock()
	if c.Watchers = len(h.receivers); c.Watchers == 0 {
		return
	}
	c.holders.Store(1) // the hub, until all subscriptions hold it
	h.memory.held.Add(c.size())
	for _, sub := range h.receivers {
		if h.told >= toldAtOnce*(1+behind) {
			h.told = 0
			h.giveWay()
		}
		h.told++
		sub.push(c)
	}
	clear(h.receivers)
	c.release(h.memory)
	h.memory.hold(0)
}

// skip continues after revision to, without the changes before it. Subscriptions can no longer get those, so all of them end.
func (h *hub) skip(to int64) {
	h.telling.Lock()
	defer h.telling.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cache.reset(to)
	for _, c := range h.undelivered {
		h.bytes -= c.size()
	}
	h.undelivered = nil
	h.endAll(ErrSlow)
	for resource := range h.waiting {
		h.wake(resource)
	}
	h.moveTo(to)
}

func (h *hub) endAll(err error) {
	for _, topic := range h.topics {
		for sub := range topic.all {
			sub.end(err)
		}
	}
}

func (h *hub) moveTo(position int64) {
	h.position.Store(max(h.at(), position))
	if h.moved != nil {
		close(h.moved)
		h.moved = nil
	}
	if len(h.undelivered) > 0 {
		h.changed.Broadcast()
	} else if !h.delivering {
		h.delivered.Store(h.at())
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

// close ends the subscriptions once they have all changes.
func (h *hub) close() {
	h.mu.Lock()
	h.closing = true
	h.changed.Broadcast()
	h.mu.Unlock()
	<-h.ended
	h.telling.Lock()
	defer h.telling.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endAll(ErrClosed)
	h.topics = nil
	clear(h.waiting)
}
