package resources

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// TestRepairAfterAFailedFirstPass checks that each loop soon retries a first pass that fails, for example because the database is
// down. The server is not ready before a pass succeeds.
func TestRepairAfterAFailedFirstPass(t *testing.T) {
	const pause, never = time.Millisecond, time.Hour
	passes := 0
	pass := func() bool {
		passes++
		return passes > 1
	}
	for name, repair := range map[string]loop{
		"addresses": restartAfterFailure(func() loop {
			return func(onFirstSuccess func(), stop chan struct{}) {
				if pass() {
					onFirstSuccess()
					<-stop
				}
			}
		}, pause),
		"ports": retryFirstPass(func(interval time.Duration) loop {
			return func(onFirstSuccess func(), stop chan struct{}) {
				wait.Until(func() {
					if pass() {
						onFirstSuccess()
					}
				}, interval, stop)
			}
		}, pause, never),
	} {
		passes = 0
		stop, ended, succeeded := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			repair(func() { close(succeeded) }, stop)
		}()
		select {
		case <-succeeded:
		case <-time.After(time.Minute):
			t.Fatalf("%s: no second pass", name)
		}
		close(stop)
		<-ended
		if passes != 2 {
			t.Errorf("%s: %d passes", name, passes)
		}
	}
}
