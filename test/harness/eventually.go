package harness

import (
	"errors"
	"testing"
	"time"
)

// Patience is how long something may take on a busy machine before it counts as not happening.
const Patience = time.Minute

// Eventually waits until holds returns true. It is for conditions outside this process, which it can only poll.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Retry(t, what, func() error {
		if !holds() {
			return errors.New("it does not hold")
		}
		return nil
	})
}

// Retry is Eventually for what returns an error that says why it does not hold yet.
func Retry(t testing.TB, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("condition not reached: %s: %v", what, err)
		}
	}
}
