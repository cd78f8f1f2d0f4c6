package sqlstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultFollowerMemory is how many bytes all followers together may hold.
const DefaultFollowerMemory = 32 << 20

// While others wait for memory, a follower is ended if its client could have received something for stuckAfter and has not, or if
// it still holds what it reserved slowAfter ago.
const (
	stuckAfter = 2 * time.Second
	slowAfter  = 15 * time.Second
)

// memory limits what followers hold: changes that they have not sent yet, each counted once however many followers hold it, and
// what they read from the log for themselves.
//
// The hub never waits, so its changes are always accepted. When they exceed the limit, the followers that have not advanced for
// longest are ended until the rest fits. Reads from the log wait for memory, and share half of it.
type memory struct {
	limit int64
	began time.Time

	held atomic.Int64 // bytes, including reserved ones
	slow atomic.Int64 // followers ended so far

	mu        sync.Mutex
	followers map[*Follower]struct{}
	reserved  int64
	waiting   []*reservation // in order
	costs     map[Resource]int
}

// reservation is a read waiting for memory.
type reservation struct {
	bytes int64
	ready chan struct{} // closed when granted
}

func newMemory(limit int64) *memory {
	return &memory{limit: limit, began: time.Now(), followers: map[*Follower]struct{}{}, costs: map[Resource]int{}}
}

// clock returns the time since began, unaffected by changes of the system clock.
func (m *memory) clock() time.Duration { return time.Since(m.began) }

// hold counts bytes, and ends followers if the total exceeds the limit.
func (m *memory) hold(bytes int64) {
	if m.held.Add(bytes) > m.limit {
		m.relieve()
	}
}

func (m *memory) release(bytes int64) { m.held.Add(-bytes) }

// relieve ends followers until the rest is within the limit, once they have released what they hold.
func (m *memory) relieve() {
	m.mu.Lock()
	defer m.mu.Unlock()
	excess := m.held.Load() - m.limit
	for f := range m.followers {
		if f.ended.Load() {
			excess -= f.held.Load()
		}
	}
	for excess > 0 {
		f := m.slowest()
		if f == nil {
			return
		}
		excess -= f.held.Load()
		f.end()
	}
}

// slowest returns, among the followers that hold something, the one that has not advanced for longest. The caller holds m.mu.
func (m *memory) slowest() (slowest *Follower) {
	for f := range m.followers {
		if f.held.Load() > 0 && !f.ended.Load() && (slowest == nil || f.progress() < slowest.progress()) {
			slowest = f
		}
	}
	return slowest
}

// reserve waits until a follower may read that many bytes. If no other read is in progress, any number may be read.
func (m *memory) reserve(ctx context.Context, bytes int64) error {
	r := &reservation{bytes: bytes, ready: make(chan struct{})}
	m.mu.Lock()
	m.waiting = append(m.waiting, r)
	m.admit()
	m.mu.Unlock()
	ticker := time.NewTicker(stuckAfter / 4)
	defer ticker.Stop()
	for {
		select {
		case <-r.ready:
			return nil
		default:
		}
		m.endStuck()
		select {
		case <-r.ready:
			return nil
		case <-ticker.C:
		case <-ctx.Done():
			m.mu.Lock()
			defer m.mu.Unlock()
			i := slices.Index(m.waiting, r)
			if i < 0 {
				return nil // granted meanwhile
			}
			m.waiting = slices.Delete(m.waiting, i, i+1)
			m.admit()
			return context.Cause(ctx)
		}
	}
}

// admit grants waiting reservations. The caller holds m.mu.
func (m *memory) admit() {
	for len(m.waiting) > 0 && (m.reserved == 0 || m.reserved+m.waiting[0].bytes <= m.limit/2) {
		r := m.waiting[0]
		m.waiting = m.waiting[1:]
		m.reserved += r.bytes
		m.held.Add(r.bytes)
		close(r.ready)
	}
}

// adjust adds to the reserved bytes.
func (m *memory) adjust(bytes int64) {
	if bytes == 0 {
		return
	}
	m.mu.Lock()
	m.reserved += bytes
	m.admit()
	m.mu.Unlock()
	m.hold(bytes)
}

// expected returns what a read of the resource will cost, judging by earlier ones.
func (m *memory) expected(resource Resource) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.costs[resource], Cost(FollowBytes))
}

// learn records the cost of a read. The largest counts, until all have been smaller for a while.
func (m *memory) learn(resource Resource, cost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cost = max(cost, m.costs[resource]*7/8); cost > Cost(FollowBytes) {
		m.costs[resource] = cost
	} else {
		delete(m.costs, resource)
	}
}

// endStuck ends followers that keep others waiting for memory.
func (m *memory) endStuck() {
	now := m.clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for f := range m.followers {
		stuck := !f.awaitsStore.Load() && now-f.progress() > stuckAfter
		if f.reserved.Load() > 0 && (stuck || now-time.Duration(f.reading.Load()) > slowAfter) {
			f.end()
		}
	}
}

func (m *memory) add(f *Follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followers[f] = struct{}{}
}

func (m *memory) remove(f *Follower) {
	m.mu.Lock()
	delete(m.followers, f)
	m.mu.Unlock()
	m.hold(0) // what it shared with others may still be too much
}
