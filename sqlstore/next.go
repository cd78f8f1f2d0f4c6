package sqlstore

// OnNext calls wake, in a goroutine, at the next change of a resource that the store sees, or if it may have missed one. It does so once,
// unless cancel is called before. After the store is closed, it is never called.
//
// Whoever knows that a resource has no objects, and has called OnNext before it looked, need not watch the resource until then.
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

// wake calls what waits for the next change of a resource. h.mu is held.
func (h *hub) wake(resource Resource) {
	for call := range h.waiting[resource] {
		go (*call)()
	}
	delete(h.waiting, resource)
}
