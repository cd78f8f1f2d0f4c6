package sqlstore

import "context"

// OnNext calls wake, in a goroutine, at the next change of a resource that the store sees, or if it may have missed one. It does so once,
// unless cancel is called before. After the store is closed, it is never called.
func (s *Store) OnNext(resource Resource, wake func()) (cancel func()) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	w := &wake
	if s.hub.waiting[resource] == nil {
		s.hub.waiting[resource] = map[*func()]struct{}{}
	}
	s.hub.waiting[resource][w] = struct{}{}
	return func() {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		delete(s.hub.waiting[resource], w)
	}
}

// WhileEmpty calls wake like OnNext, and reports whether the resource has no objects: until then, nobody need watch it. If it has some, or
// they can't be counted, wake may still be called.
func (s *Store) WhileEmpty(ctx context.Context, resource Resource, wake func()) (cancel func(), empty bool) {
	cancel = s.OnNext(resource, wake) // first, so that no change is between the two
	if n, err := s.Count(ctx, Query{Resource: resource, Limit: 1}); n > 0 || err != nil {
		cancel()
		return nil, false
	}
	return cancel, true
}

// wake calls what waits for the next change of a resource. h.mu is held.
func (h *hub) wake(resource Resource) {
	for call := range h.waiting[resource] {
		go (*call)()
	}
	delete(h.waiting, resource)
}

// Alone reports whether no other process can write to the database.
func (s *Store) Alone() bool { return s.alone }
