package fleet

import (
	"context"
	"sync"
)

// turns limit how much is done at once: how many clusters wake up, or how many of their requests run. Namespaces, or clusters, take turns, and
// within one, who came first is first.
type turns struct {
	mu    sync.Mutex
	free  int
	lines map[string]*line // by namespace, if someone waits
	order []*line          // in which they get a turn
}

type line struct {
	namespace string
	waiting   []chan struct{} // each closed when it is its turn
}

func newTurns(atOnce int) *turns { return &turns{free: atOnce, lines: map[string]*line{}} }

// take waits for a turn, which release ends. It returns the cause if ctx ends first.
func (t *turns) take(ctx context.Context, namespace string) (release func(), err error) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return sync.OnceFunc(t.give), nil
	}
	l := t.lines[namespace]
	if l == nil {
		l = &line{namespace: namespace}
		t.lines[namespace], t.order = l, append(t.order, l)
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return sync.OnceFunc(t.give), nil
	case <-ctx.Done():
		t.leave(namespace, turn)
		return nil, context.Cause(ctx)
	}
}

// wanted reports whether someone waits for a turn.
func (t *turns) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.order) > 0
}

// give passes a turn on.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	l := t.order[0]
	t.order = t.order[1:]
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
	if len(l.waiting) > 0 {
		t.order = append(t.order, l)
	} else {
		delete(t.lines, l.namespace)
	}
}

// leave gives up a turn that may have come meanwhile.
func (t *turns) leave(namespace string, turn chan struct{}) {
	t.mu.Lock()
	if l := t.lines[namespace]; l != nil {
		for i, other := range l.waiting {
			if other != turn {
				continue
			}
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			if len(l.waiting) == 0 {
				delete(t.lines, namespace)
				for i, other := range t.order {
					if other == l {
						t.order = append(t.order[:i], t.order[i+1:]...)
						break
					}
				}
			}
			t.mu.Unlock()
			return
		}
	}
	t.mu.Unlock()
	t.give() // it has come
}
