package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/sqube/sqube/cmd/sqube/internal/memlimit"
)

// limitMemory sets the memory limit of Go to three quarters of the memory of the machine or of its cgroup. The rest is for SQLite
// and other memory. GOMEMLIMIT has precedence.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if n := memlimit.Available("/"); n > 0 {
		debug.SetMemoryLimit(n / 4 * 3)
	}
}

// watchShare is the part of GOMEMLIMIT for watches: one sixteenth.
const watchShare = 16

// watchMemory is how much memory all watches together may use: a part of GOMEMLIMIT, or 0 for the default if that is not set.
func watchMemory() int64 {
	limit := debug.SetMemoryLimit(-1) // a negative limit changes nothing
	if os.Getenv("GOMEMLIMIT") == "" || limit == math.MaxInt64 {
		return 0
	}
	return max(limit/watchShare, minWatchMemory)
}

// minWatchMemory is enough for a few of the largest objects.
const minWatchMemory = 8 << 20
