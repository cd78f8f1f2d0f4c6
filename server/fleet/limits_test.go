package fleet

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// TestSeats floods the seats with the requests of one cluster, and counts how many of them run before the one request of another.
func TestSeats(t *testing.T) {
	s, flooding, other := newSeats(), types.NamespacedName{Name: "flooding"}, types.NamespacedName{Name: "other"}
	const many = 100
	seated := make(chan types.NamespacedName, many+1)
	var running []func()
	for s.free > 0 {
		stand, err := s.sit(t.Context(), flooding)
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, stand)
	}
	request := func(c types.NamespacedName, place int) {
		go func() {
			if stand, err := s.sit(t.Context(), c); err == nil {
				seated <- c
				stand()
			}
		}()
		for waiting := 0; waiting <= place; { // until it is in the line
			s.mu.Lock()
			waiting = 0
			for _, l := range s.lines {
				waiting += len(l.waiting)
			}
			s.mu.Unlock()
		}
	}
	for i := range many {
		request(flooding, i)
	}
	request(other, many)
	running[0]()
	for before := 0; ; before++ {
		if <-seated == other {
			if before > 1 {
				t.Errorf("%d requests of the flooding cluster ran before", before)
			}
			return
		}
	}
}

// TestLimitsOfRequests looks at what stays when limits change.
func TestLimitsOfRequests(t *testing.T) {
	l := limited(nil, v1alpha1.Limits{Watches: 1})
	end, err := l.begin(true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.begin(true); err == nil {
		t.Error("a second watch is open")
	}
	if same := limited(l, v1alpha1.Limits{Watches: 1}); same != l {
		t.Error("limits that have not changed are new")
	}
	l = limited(l, v1alpha1.Limits{Watches: 1, RequestsPerSecond: 1000})
	if _, err := l.begin(true); err == nil {
		t.Error("with other limits, a second watch is open")
	}
	end()
	if _, err := l.begin(true); err != nil {
		t.Errorf("after the first watch has ended: %v", err)
	}
	if none := limited(l, v1alpha1.Limits{}); none != nil {
		t.Error("there are limits without a limit")
	}
}
