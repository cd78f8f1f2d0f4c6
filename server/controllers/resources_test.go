package controllers

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAgainRunsOnceThingsHaveSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changes := &resourceChanges{}
		changed := changes.subscribe()
		var starts, running atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			again(ctx, changed, func(ctx context.Context) {
				starts.Add(1)
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
			})
		}()
		expect := func(when string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := starts.Load(); got != want {
				t.Fatalf("%s: run %d times, want %d", when, got, want)
			}
			if got := running.Load(); got != 1 {
				t.Fatalf("%s: %d running at the same time, want 1", when, got)
			}
		}

		expect("at start", 1)
		for range 5 { // a definition is written several times until it is established
			changes.notify()
			time.Sleep(discoveryQuiet / 2) // the bubble's clock
		}
		expect("while it changes", 1)
		time.Sleep(discoveryQuiet)
		expect("when it has settled", 2)
		time.Sleep(time.Hour)
		expect("without a change", 2)

		cancel()
		<-done
		if running.Load() != 0 {
			t.Fatal("still running after the end")
		}
	})
}
