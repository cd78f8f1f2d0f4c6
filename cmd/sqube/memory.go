package main

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sqube/sqube/cmd/sqube/internal/available"
)

// startPercent is GOGC while a server starts.
const startPercent = 200

// atRest is how long after a server is ready its informers and controllers have surely read what they keep.
const atRest = 10 * time.Second

// collectLess lets garbage grow further than usual between collections, which otherwise take a quarter of a start. The
// func that it returns goes back to the usual, waits until the server is at rest, and gives the memory of the start back
// to the system; it returns early when ctx ends. If the environment has GOGC, that stands throughout. See pace for what
// comes then.
func collectLess() (settle func(ctx context.Context)) {
	back := func(context.Context) {}
	if os.Getenv("GOGC") == "" {
		usual := debug.SetGCPercent(startPercent)
		back = func(ctx context.Context) {
			debug.SetGCPercent(usual)
			go pace(ctx, usual)
		}
	}
	return func(ctx context.Context) {
		back(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(atRest):
		}
		runtime.GC() // FreeOSMemory collects too; what pools hold goes with the second collection
		debug.FreeOSMemory()
	}
}

// limitMemory makes the collector work harder before the server has used up the memory of the machine or of its cgroup,
// of which a quarter is left for SQLite and all else. GOMEMLIMIT, where the environment has it, stands.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if n := available.Memory("/"); n > 0 {
		debug.SetMemoryLimit(n / 4 * 3)
	}
}

// followerShare is the part of GOMEMLIMIT that is for watches.
const followerShare = 16

// followerMemory is how much memory watches may keep in use together: a part of GOMEMLIMIT, or 0, for the default, where
// that is not set.
func followerMemory() int64 {
	limit := debug.SetMemoryLimit(-1) // a negative one changes nothing
	if os.Getenv("GOMEMLIMIT") == "" || limit == math.MaxInt64 {
		return 0
	}
	return max(limit/followerShare, leastFollowerMemory)
}

// leastFollowerMemory holds a few of the largest objects.
const leastFollowerMemory = 8 << 20
