package main

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/sqube/sqube/cmd/sqube/internal/memlimit"
)

// By default the garbage collector lets the heap double between collections. That does not suit a server that caches objects as
// bytes: these cost a collection nothing, so they need no headroom. And the rest of a small cluster's heap is so small that under
// load collections would take an eighth of the CPU. So the heap may grow between collections by the size of everything but the
// cached objects, at least by minHeadroom, and at least by busyHeadroom while collections are frequent. It never grows by more
// than maxHeadroom: the controllers of a large cluster hold hundreds of megabytes of objects permanently, which need no headroom
// either. When there has been no collection for a while, unused memory is returned to the system. GOMEMLIMIT applies in addition,
// GOGC instead.
const (
	minHeadroom  = 32 << 20
	busyHeadroom = 96 << 20
	maxHeadroom  = 128 << 20
	// busyInterval is the interval between collections below which the server is busy.
	busyInterval = 2 * time.Second
	// quietInterval is the time without a collection after which the server is quiet.
	quietInterval = 2 * time.Second
	// startPercent is GOGC while a server starts: with the default, collections take a quarter of the start.
	startPercent = 200
)

// paceCollector sets GOGC to startPercent. It returns a function, to be called when the server is ready, that adjusts GOGC as
// described above until ctx ends. cached returns the size of the cached objects in bytes.
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
		percent, collections := startPercent, uint64(0) // seen so far
		for at := time.Now(); ; {
			busy := false
			var h heap
			select {
			case <-ctx.Done():
				return
			case <-quiet.C:
				h = readHeap()
				if h.taken > h.live+minHeadroom/2 {
					runtime.GC() // FreeOSMemory collects too; the second collection frees what pools hold
					debug.FreeOSMemory()
					if err := unmapCode(); err != nil {
						slog.Debug("unmapping code that starting needed", "error", err)
					}
					h = readHeap()
				}
			case <-collected:
				h = readHeap()
				if h.collections == collections {
					continue // requested above
				}
				busy = time.Since(at) < busyInterval
				at = time.Now()
				quiet.Reset(quietInterval)
			}
			collections = h.collections
			next := growthPercent(h.live, cached(), busy)
			// Setting it stops the world for a moment, so it changes in coarse steps.
			if next < percent*9/10 || next > percent*11/10 {
				percent = next
				debug.SetGCPercent(percent)
			}
		}
	}
}

// growthPercent returns by how much a heap may grow until the next collection, in percent of the live bytes. cached of these are
// cached objects.
func growthPercent(live, cached int64, busy bool) int {
	headroom := min(max(live-cached, minHeadroom), maxHeadroom)
	if busy {
		headroom = max(headroom, busyHeadroom)
	}
	return int(max(100*headroom/max(live, 1<<20), 1)) // with 0, collections would never pause
}

// heap has the runtime's statistics of the heap.
type heap struct {
	collections uint64 // automatic ones
	live, taken int64  // bytes live at the last collection, and bytes of memory for objects
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

// notifyCollections sends to collected after each collection until ctx ends, unless a notification is pending.
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

// limitShare is the part of the available memory to which Go's is limited by default.
const limitShare = 0.75

// limitMemory sets the memory limit of Go to three quarters of the memory of the machine or of its cgroup. The rest is for SQLite
// and other memory. GOMEMLIMIT has precedence.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if n := memlimit.Available("/"); n > 0 {
		debug.SetMemoryLimit(int64(limitShare * float64(n)))
	}
}

// watchShare is the part of GOMEMLIMIT for watches: one sixteenth.
const watchShare = 16

// watchMemory returns how much memory all watches together may use: a part of GOMEMLIMIT, or 0 for the default if that is not set.
func watchMemory() int64 {
	limit := debug.SetMemoryLimit(-1) // a negative limit changes nothing
	if os.Getenv("GOMEMLIMIT") == "" || limit == math.MaxInt64 {
		return 0
	}
	return max(limit/watchShare, minWatchMemory)
}

// minWatchMemory is enough for a few of the largest objects.
const minWatchMemory = 8 << 20
