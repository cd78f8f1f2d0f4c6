package server

import (
	"slices"
	"sync"
)

// instances are the values in this process that metrics report on: a process may run several servers.
type instances[T comparable] struct {
	mu  sync.Mutex
	all []T
}

// add includes an instance in the metrics until remove is called.
func (r *instances[T]) add(instance T) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, instance)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = slices.DeleteFunc(r.all, func(other T) bool { return other == instance })
	}
}

func (r *instances[T]) list() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}
