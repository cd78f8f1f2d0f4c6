package apistorage

import (
	"context"
	"sync"

	"github.com/sqube/sqube/sqlstore"
)

// Some lists, such as those in YAML and of some custom resources, are built from whole objects that the response needs all at
// once, so their memory grows with their length. Concurrent lists share a budget. One that does not fit waits for the overdraft,
// which a single list may use at a time. So every list finishes, and together they need no more than the budget plus the largest
// list.
const (
	// listBudgetBytes is the budget.
	listBudgetBytes = 128 << 20
	// decodedBytes is roughly how many bytes a stored byte takes as part of an object and of the response.
	decodedBytes = 4
	// heldBudgetBytes is what protobuf lists may hold in addition; see writeProtobuf.
	heldBudgetBytes = 32 << 20
)

// listBudget is the memory that running lists share.
type listBudget struct {
	mu   sync.Mutex
	free int
	// overdraft has one element: the right to exceed the budget.
	overdraft chan struct{}
}

func newListBudget(bytes int) *listBudget {
	b := &listBudget{free: bytes, overdraft: make(chan struct{}, 1)}
	b.overdraft <- struct{}{}
	return b
}

// budgetShare is what one list has reserved of a budget.
type budgetShare struct {
	budget    *listBudget
	reserved  int
	overdrawn bool
}

// tryReserve reserves more bytes if they are free.
func (s *budgetShare) tryReserve(bytes int) bool {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if bytes > s.budget.free {
		return false
	}
	s.budget.free -= bytes
	s.reserved += bytes
	return true
}

// reserve reserves more bytes. If they are not free, it waits for the overdraft.
func (s *budgetShare) reserve(ctx context.Context, bytes int) error {
	if s.overdrawn || s.tryReserve(bytes) {
		return nil
	}
	select {
	case <-s.budget.overdraft:
		s.overdrawn = true
		return nil
	case <-ctx.Done():
		return interpret(ctx.Err())
	}
}

// release returns everything to the budget.
func (s *budgetShare) release() {
	if s.budget == nil {
		return
	}
	s.budget.mu.Lock()
	s.budget.free += s.reserved
	s.budget.mu.Unlock()
	if s.overdrawn {
		s.budget.overdraft <- struct{}{}
	}
	s.reserved, s.overdrawn = 0, false
}

type budgetKey struct{}

// WithListBudget returns a context for a read request, and a function that releases what the list reserved, to be called once the
// response has been sent.
func WithListBudget(ctx context.Context) (context.Context, func()) {
	s := &budgetShare{}
	return context.WithValue(ctx, budgetKey{}, s), s.release
}

// reservePage reserves memory for the page of objects just read. The first page of a list needs no reservation, so that only long
// lists wait; nor do in-process lists.
func (w *walk) reservePage(ctx context.Context) error {
	share, ok := ctx.Value(budgetKey{}).(*budgetShare)
	w.bytes += w.pageBytes
	if !ok || w.bytes < sqlstore.PageBytes+w.pageBytes {
		return nil
	}
	share.budget = w.decodedBudget
	return share.reserve(ctx, decodedBytes*w.pageBytes)
}
