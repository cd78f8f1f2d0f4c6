package apistorage

import (
	"context"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestListBudget reserves memory step by step for lists that together need more than the budget. All of them finish.
func TestListBudget(t *testing.T) {
	const size = 100
	r := NewBudget(size)
	var lists sync.WaitGroup
	for range 20 {
		lists.Go(func() {
			share := r.Share()
			defer share.Release()
			for range 30 {
				if err := share.Reserve(t.Context(), 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	lists.Wait()

	first, beyond, third := r.Share(), r.Share(), r.Share()
	if !first.tryReserve(size) || first.tryReserve(1) {
		t.Fatal("the budget is smaller than it should be")
	}
	if err := beyond.Reserve(t.Context(), 1); err != nil || !beyond.overdrawn {
		t.Fatalf("the overdraft of an empty budget is not granted: %v", err)
	}
	// A client that has disconnected or timed out stops waiting.
	ended, end := context.WithCancel(t.Context())
	end()
	if err := third.Reserve(ended, 1); !apierrors.IsTimeout(err) {
		t.Errorf("a list that waited in vain ends with %v", err)
	}
	beyond.Release()
	if err := third.Reserve(t.Context(), 1); err != nil {
		t.Error(err)
	}
	third.Release()
	first.Release()
	if !r.free.TryAcquire(size) || !r.overdraft.TryAcquire(1) {
		t.Error("not all of it is free at the end")
	}
}
