package apistorage

import (
	"context"

	"golang.org/x/sync/semaphore"

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

// Budget is the memory that running requests share.
type Budget struct {
	free      *semaphore.Weighted
	overdraft *semaphore.Weighted // one may exceed the budget
}

// NewBudget returns a budget of that many bytes.
func NewBudget(bytes int) *Budget {
	return &Budget{free: semaphore.NewWeighted(int64(bytes)), overdraft: semaphore.NewWeighted(1)}
}

// Share returns a share in which nothing is reserved yet.
func (b *Budget) Share() *Share { return &Share{budget: b} }

// Share is what one request has reserved of a budget.
type Share struct {
	budget    *Budget
	reserved  int
	overdrawn bool
}

// tryReserve reserves more bytes if they are free.
func (s *Share) tryReserve(bytes int) bool {
	if !s.budget.free.TryAcquire(int64(bytes)) {
		return false
	}
	s.reserved += bytes
	return true
}

// Reserve reserves more bytes. If they are not free, it waits for the overdraft.
func (s *Share) Reserve(ctx context.Context, bytes int) error {
	if s.overdrawn || s.tryReserve(bytes) {
		return nil
	}
	if err := s.budget.overdraft.Acquire(ctx, 1); err != nil {
		return ClientError(err)
	}
	s.overdrawn = true
	return nil
}

// Release returns everything to the budget.
func (s *Share) Release() {
	if s.budget == nil {
		return
	}
	s.budget.free.Release(int64(s.reserved))
	if s.overdrawn {
		s.budget.overdraft.Release(1)
	}
	s.reserved, s.overdrawn = 0, false
}

type budgetKey struct{}

// WithListBudget returns a context for a read request, and a function that releases what the list reserved, to be called once the
// response has been sent.
func WithListBudget(ctx context.Context) (context.Context, func()) {
	s := &Share{}
	return context.WithValue(ctx, budgetKey{}, s), s.Release
}

// reservePage reserves memory for the page of objects just read. The first page of a list needs no reservation, so that only long
// lists wait; nor do in-process lists.
func (w *walk) reservePage(ctx context.Context) error {
	share, ok := ctx.Value(budgetKey{}).(*Share)
	w.bytes += w.pageBytes
	if !ok || w.bytes < sqlstore.PageBytes+w.pageBytes {
		return nil
	}
	share.budget = w.decodedBudget
	return share.Reserve(ctx, decodedBytes*w.pageBytes)
}
