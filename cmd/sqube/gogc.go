package main

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// By default the garbage collector lets the heap double between collections. That does not suit a server that keeps its
// objects in memory as bytes: they cost a collection nothing, so they need not be doubled. And the rest of a small
// cluster's heap is so small that under load collections would take an eighth of the CPU. So the heap may grow between
// collections by what it holds beside the cached objects, but by minHeadroom, and by busyHeadroom while collections come
// fast. It never grows by more than maxHeadroom: the controllers of a large cluster hold hundreds of megabytes of objects
// for good, which need not be doubled either. What the heap took meanwhile goes back to the system once no collection has
// come for a while. GOMEMLIMIT holds over all of it, and GOGC, where the environment has it, instead of it.
const (
	minHeadroom  = 32 << 20
	busyHeadroom = 96 << 20
	maxHeadroom  = 128 << 20
	// busyInterval is between collections of a busy server.
	busyInterval = 2 * time.Second
	// quietInterval is without a collection after a busy time.
	quietInterval = 2 * time.Second
	// startPercent is GOGC while a server starts: collections take a quarter of a start with the default.
	startPercent = 200
)

// paceCollector lets garbage grow far while the server starts. It returns a function that adjusts GOGC as described above
// until ctx ends, to be called when the server is ready. cached returns how many bytes objects take that are kept.
func paceCollector() (pace func(ctx context.Context, cached func() int64)) {
	if os.Getenv("GOGC") != "" {
		return func(context.Context, func() int64) {}
	}
	debug.SetGCPercent(startPercent)
	return func(ctx context.Context, cached func() int64) {
		collected := make(chan struct{}, 1)
		notifyCollections(ctx, collected)
		quiet := time.NewTimer(quietInterval)
		defer quiet.Stop()
		percent, collections := startPercent, uint64(0) // that were seen
		for at := time.Now(); ; {
			busy := false
			var h heap
			select {
			case <-ctx.Done():
				return
			case <-quiet.C:
				h = readHeap()
				if h.taken > h.live+minHeadroom/2 {
					runtime.GC() // FreeOSMemory collects too; what pools hold goes with the second collection
					debug.FreeOSMemory()
					if err := unmapCode(); err != nil {
						slog.Debug("unmapping code that starting needed", "error", err)
					}
					h = readHeap()
				}
			case <-collected:
				h = readHeap()
				if h.collections == collections {
					continue // it was asked for above
				}
				busy = time.Since(at) < busyInterval
				at = time.Now()
				quiet.Reset(quietInterval)
			}
			collections = h.collections
			next := growthPercent(h.live, cached(), busy)
			// To set it stops the world for a moment, so it follows the heap in coarse steps.
			if next < percent*9/10 || next > percent*11/10 {
				percent = next
				debug.SetGCPercent(percent)
			}
		}
	}
}

// growthPercent returns by how much a heap may grow to the next collection, in percent of the bytes that are live, of
// which cached are objects that are kept.
func growthPercent(live, cached int64, busy bool) int {
	headroom := min(max(live-cached, minHeadroom), maxHeadroom)
	if busy {
		headroom = max(headroom, busyHeadroom)
	}
	return int(100 * headroom / max(live, 1<<20))
}

// heap is what the runtime says of the heap.
type heap struct {
	collections uint64 // that the program did not ask for
	live, taken int64  // bytes in use at the last collection, and bytes of the system's memory that are for objects
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	return heap{collections: samples[0].Value.Uint64(), live: value(1), taken: value(2) + value(3)}
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
