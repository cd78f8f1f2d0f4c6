package undo

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestBudget holds what plans may hold together, and no more.
// TestBudget holds what plans may hold together, and no more.
func TestBudget(t *testing.T) {
	all := &budget{}
	one, two, three := &account{budget: all}, &account{budget: all}, &account{budget: all}
	for _, a := range []*account{one, two} {
		if err := a.add(maxBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.add(1); !apierrors.IsBadRequest(err) {
		t.Errorf("one plan may hold more than its share: %v", err)
	}
	if err := three.add(1); !apierrors.IsTooManyRequests(err) {
		t.Errorf("all plans may hold more than their share: %v", err)
	}
	one.release()
	if err := three.add(1); err != nil {
		t.Errorf("after a plan is done: %v", err)
	}
	two.release()
	three.release()
	if all.held != 0 {
		t.Errorf("when all are done, %d bytes are held", all.held)
	}
}
