package connections

import (
	"container/list"
	"sync"
)

// turns lets few TLS handshakes use the processors at once, and the others wait in line. So a storm of clients leaves time for the requests of
// those that are connected, and the handshakes end one after another: if all advanced together, all would end too late.
type turns struct {
	mu   sync.Mutex
	free int
	// begun are handshakes that have begun, which go first, and fresh are others. Both are lists of chan struct{}.
	begun, fresh list.List
}

// take waits for a turn.
func (t *turns) take(begun bool) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return
	}
	line, turn := &t.fresh, make(chan struct{})
	if begun {
		line = &t.begun
	}
	line.PushBack(turn)
	t.mu.Unlock()
	<-turn // soon: who has a turn computes, and gives it back before it reads or writes
}

// give gives a turn back.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, line := range []*list.List{&t.begun, &t.fresh} {
		if next := line.Front(); next != nil {
			close(line.Remove(next).(chan struct{}))
			return
		}
	}
	t.free++
}
