package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The garbage collector runs when the heap has doubled, by default. The live heap of a small cluster is so small that this
// happens many times a second under load, and takes an eighth of the CPU. While collections come that fast, the heap may
// grow by busyHeadroom between them. A larger heap grows by more anyhow, and keeps the default. GOMEMLIMIT, where it is
// set, holds over all of it.
const (
	busyHeadroom = 96 << 20
	// busyInterval is between collections of a busy server, quietInterval between those of one that is no longer busy.
	busyInterval  = time.Second
	quietInterval = 5 * time.Second
)

// pace adjusts GOGC as described above until ctx ends. usual is GOGC of a server that is not busy.
func pace(ctx context.Context, usual int) {
	collected := make(chan struct{}, 1)
	notifyCollections(ctx, collected)
	quiet := time.NewTimer(quietInterval)
	defer quiet.Stop()
	percent := usual
	for last := time.Now(); ; {
		next := percent
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			if next = usual; percent != usual {
				debug.FreeOSMemory() // what the busy time took beyond what is in use
			}
		case <-collected:
			now := time.Now()
			next = busyPercent(percent, usual, now.Sub(last), liveHeap())
			last = now
			quiet.Reset(quietInterval)
		}
		if next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
	}
}

// busyPercent returns what GOGC shall be after a collection, interval after the one before it, that left live bytes.
func busyPercent(percent, usual int, interval time.Duration, live uint64) int {
	if interval >= quietInterval || percent == usual && interval >= busyInterval {
		return usual
	}
	wanted := max(usual, int(100*busyHeadroom/max(live, 1<<20)))
	// To set it stops the world for a moment, so it follows the heap in coarse steps.
	if wanted != usual && wanted > percent*9/10 && wanted < percent*11/10 {
		return percent
	}
	return wanted
}

// liveHeap returns how many bytes the last collection found in use.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// notifyCollections sends to collected after each collection until ctx ends, unless one is waiting there.
func notifyCollections(ctx context.Context, collected chan<- struct{}) {
	runtime.AddCleanup(new(*byte), func(collected chan<- struct{}) {
		select {
		case collected <- struct{}{}:
		default:
		}
		if ctx.Err() == nil {
			notifyCollections(ctx, collected)
		}
	}, collected)
}
