package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// startPercent is GOGC while a server starts.
const startPercent = 200

// atRest is how long after a server is ready its informers and controllers have surely read what they keep.
const atRest = 10 * time.Second

// collectLess lets garbage grow further than usual between collections, which otherwise take a quarter of a start. The
// func that it returns goes back to the usual, waits until the server is at rest, and gives the memory of the start back
// to the system; it returns early when ctx ends. If the environment has GOGC, that stands throughout.
func collectLess() (settle func(ctx context.Context)) {
	back := func() {}
	if os.Getenv("GOGC") == "" {
		usual := debug.SetGCPercent(startPercent)
		back = func() { debug.SetGCPercent(usual) }
	}
	return func(ctx context.Context) {
		back()
		select {
		case <-ctx.Done():
			return
		case <-time.After(atRest):
		}
		runtime.GC() // FreeOSMemory collects too; what pools hold goes with the second collection
		debug.FreeOSMemory()
	}
}
