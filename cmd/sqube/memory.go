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
// cached objects, at least by minHeadroom, and at least by busyHeadroom while collections stay frequent: not after the burst of a start,
// which would leave what lives on scattered over all that memory. Beyond largeHeadroom it grows by half of that: the controllers of a
// large cluster hold hundreds of megabytes of objects permanently, which need less headroom, but a fixed one would be used up faster the
// larger the cluster is, by collections that each cost more. GOMEMLIMIT applies in addition, GOGC instead.
//
// When there has been no collection for a while, unused memory is returned to the system. What the last collection has found costs next
// to nothing to return. What has become unused since takes another collection, which costs as much as thousands of requests if the heap
// is large; so unless it is much, it waits until the server is idle.
const (
	idleHeadroom = 8 << 20
	minHeadroom  = 32 << 20
	busyHeadroom = 96 << 20
	// largeHeadroom is that of heaps of up to twice its size besides cached objects.
	largeHeadroom = 128 << 20
	// smallHeap is the size up to which a collection costs little.
	smallHeap = 64 << 20
	// The server is busy while each of the last busyAfter collections came within busyInterval after the one before.
	busyAfter    = 3
	busyInterval = 2 * time.Second
	// quietInterval is the time without a collection after which the server is quiet, and idleInterval that after which it is idle.
	quietInterval = 2 * time.Second
	idleInterval  = 30 * time.Second
	// startPercent is GOGC while a server starts: with the default, collections take a quarter of the start, with this there are few after
	// the libraries are initialized.
	startPercent = 400
	// sparingPercent is that of a server that spares memory rather than CPU: a mirror, whose start is a copy of a whole cluster.
	sparingPercent = 100
)

// paceCollector sets GOGC to startPercent, or sparingPercent. It returns a function, to be called when the server is ready, that adjusts GOGC as
// described above until ctx ends. cached returns the size of the cached objects in bytes.
func paceCollector(sparing bool) (pace func(ctx context.Context, cached func() int64)) {
	if os.Getenv("GOGC") != "" {
		return func(context.Context, func() int64) {}
	}
	start := startPercent
	if sparing {
		start = sparingPercent
	}
	debug.SetGCPercent(start)
	return func(ctx context.Context, cached func() int64) {
		collected := make(chan struct{}, 1)
		notifyCollections(ctx, collected)
		quiet := time.NewTimer(quietInterval)
		defer quiet.Stop()
		percent, collections := start, uint64(0) // seen so far
		frequent := 0                            // collections in a row
		for at := time.Now(); ; {
			var h heap
			headroom := int64(0) // the usual one
			select {
			case <-ctx.Done():
				return
			case <-quiet.C:
				h = readHeap()
				if time.Since(at) >= idleInterval {
					headroom = idleHeadroom
					if h.taken-h.live > h.live/8+idleHeadroom {
						debug.FreeOSMemory()
					}
				} else {
					quiet.Reset(idleInterval - quietInterval)
					if h.live < smallHeap && h.taken-h.live > minHeadroom/2 || h.objects-h.live > h.live/8+minHeadroom/2 {
						debug.FreeOSMemory()
					} else {
						returnFree(h)
					}
				}
				if err := unmapCode(); err != nil {
					slog.Debug("unmapping code that is not needed", "error", err)
				}
				h = readHeap()
			case <-collected:
				h = readHeap()
				if h.collections == collections {
					continue // requested above
				}
				if time.Since(at) >= busyInterval {
					frequent = 0
				}
				frequent++
				at = time.Now()
				quiet.Reset(quietInterval)
			}
			collections = h.collections
			if headroom == 0 {
				headroom = usualHeadroom(h.live, cached(), frequent > busyAfter && !sparing)
			}
			next := int(max(100*headroom/max(h.live, 1<<20), 1)) // with 0, collections would never pause
			// Setting it stops the world for a moment, so it changes in coarse steps.
			if next < percent*9/10 || next > percent*11/10 {
				percent = next
				debug.SetGCPercent(percent)
			}
		}
	}
}

// usualHeadroom returns by how many bytes a heap may grow until the next collection. cached of the live bytes are cached objects.
func usualHeadroom(live, cached int64, busy bool) int64 {
	others := live - cached
	headroom := max(min(others, largeHeadroom), others/2, minHeadroom)
	if busy {
		headroom = max(headroom, busyHeadroom)
	}
	return headroom
}

// returnFree returns memory in which there are no objects to the system, except for a reserve, without a collection. Nothing in the runtime
// does only that. But if its memory is above the limit, it returns as much before it takes memory for a large object.
func returnFree(h heap) {
	reserve := h.live/16 + minHeadroom/2
	limit := h.mapped - (h.taken - h.objects) + reserve
	before := debug.SetMemoryLimit(-1)
	if limit >= min(h.mapped, before) {
		return
	}
	debug.SetMemoryLimit(limit)
	runtime.KeepAlive(make([]byte, 256<<10))
	if changed := debug.SetMemoryLimit(before); changed != limit {
		debug.SetMemoryLimit(changed) // by somebody else, meanwhile
	}
}

// heap has the runtime's statistics of the heap.
type heap struct {
	collections uint64 // automatic ones
	// Bytes live at the last collection, of objects now, and of memory for objects.
	live, objects, taken int64
	mapped               int64 // bytes of all memory that the runtime has and has not returned
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	return heap{collections: samples[0].Value.Uint64(), live: value(1), objects: value(2), taken: value(2) + value(3), mapped: value(4) - value(5)}
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
