package server

import (
	"slices"
	"sync"
)

// shown are the parts of this process whose figures the metrics show, since there may be several servers in it.
type instances[T comparable] struct {
	mu  sync.Mutex
	all []T
}

// add has a part's figures shown until the func that it returns is called.
func (r *instances[T]) add(part T) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, part)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = slices.DeleteFunc(r.all, func(other T) bool { return other == part })
	}
}

func (r *instances[T]) list() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}
