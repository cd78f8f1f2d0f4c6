package apistorage

import (
	"context"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestRoom has lists that need more than there is take their room step by step: all come to their end, whoever holds what.
func TestRoom(t *testing.T) {
	const size = 100
	r := newRoom(size)
	var lists sync.WaitGroup
	for range 20 {
		lists.Go(func() {
			share := &roomShare{room: r}
			defer share.giveBack()
			for range 30 {
				if err := share.wait(t.Context(), 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	lists.Wait()

	first, beyond, third := &roomShare{room: r}, &roomShare{room: r}, &roomShare{room: r}
	if !first.take(size) || first.take(1) {
		t.Fatal("the room is not as large as it should be")
	}
	if err := beyond.wait(t.Context(), 1); err != nil || !beyond.beyond {
		t.Fatalf("nobody may go beyond a room that is full: %v", err)
	}
	// A client that has gone, or whose time is over, waits no longer.
	ended, end := context.WithCancel(t.Context())
	end()
	if err := third.wait(ended, 1); !apierrors.IsTimeout(err) {
		t.Errorf("a list without room ends with %v", err)
	}
	beyond.giveBack()
	if err := third.wait(t.Context(), 1); err != nil {
		t.Error(err)
	}
	third.giveBack()
	first.giveBack()
	if r.free != size || len(r.beyond) != 1 {
		t.Errorf("%d of %d are free in the end", r.free, size)
	}
}
