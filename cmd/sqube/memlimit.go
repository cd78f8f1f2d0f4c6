package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/sqube/sqube/cmd/sqube/internal/memlimit"
)

// limitMemory makes the collector work harder before the server has used up the memory of the machine or of its cgroup,
// of which a quarter is left for SQLite and all else. GOMEMLIMIT, where the environment has it, stands.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if n := memlimit.Available("/"); n > 0 {
		debug.SetMemoryLimit(n / 4 * 3)
	}
}

// watchShare is the part of GOMEMLIMIT that is for watches.
const watchShare = 16

// watchMemory is how much memory watches may keep in use together: a part of GOMEMLIMIT, or 0, for the default, where
// that is not set.
func watchMemory() int64 {
	limit := debug.SetMemoryLimit(-1) // a negative one changes nothing
	if os.Getenv("GOMEMLIMIT") == "" || limit == math.MaxInt64 {
		return 0
	}
	return max(limit/watchShare, minWatchMemory)
}

// minWatchMemory holds a few of the largest objects.
const minWatchMemory = 8 << 20
