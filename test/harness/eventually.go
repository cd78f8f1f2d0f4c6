package harness

import (
	"testing"
	"time"
)

// Patience is how long something may take on a machine that is busy with other tests, before it counts as not happening.
const Patience = time.Minute

// Eventually waits until holds returns true. It is for what is outside this process, so that there is nothing to wait on.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come about that %s", what)
		}
	}
}
