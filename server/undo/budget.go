package undo

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What plans hold is counted: the changes that they look at, and what the objects become, with what is shown of that.
const (
	maxBytes = 64 << 20     // of one plan
	allBytes = 2 * maxBytes // of all plans together
	// changeBytes and stepBytes are what a change and a step take, roughly, without values.
	changeBytes, stepBytes = 600, 2000
)

// budget is what all plans may hold together.
type budget struct {
	mu   sync.Mutex
	held int
}

// account is what one plan holds.
type account struct {
	budget *budget
	held   int
}

// add counts bytes. It returns an API error if they are too many.
func (a *account) add(bytes int) error {
	if a.held+bytes > maxBytes {
		return tooLarge("this undo takes more than the %d MiB that one may: limit it to a namespace, to resources, or to a shorter time", maxBytes>>20)
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	if a.budget.held+bytes > allBytes {
		return apierrors.NewTooManyRequests(fmt.Sprintf("undos of others hold the %d MiB that all may together: try again soon, or undo less at once", allBytes>>20), 1)
	}
	a.held, a.budget.held = a.held+bytes, a.budget.held+bytes
	return nil
}

// release gives everything back.
func (a *account) release() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.held, a.held = a.budget.held-a.held, 0
}
