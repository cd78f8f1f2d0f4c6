package harness

import (
	"testing"
	"time"
)

// Patience is how long something may take on a busy machine before it counts as not happening.
const Patience = time.Minute

// Eventually waits until holds returns true. It is for conditions outside this process, which it can only poll.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("condition not reached: %s", what)
		}
	}
}
