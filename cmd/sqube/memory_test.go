package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestUsualHeadroom checks that the heap grows by the size of what is not cached, within limits.
func TestUsualHeadroom(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		what         string
		live, cached int64
		busy         bool
		headroom     int64
	}{
		{"a small heap grows by 32 MB", 16 * mb, 0, false, 32 * mb},
		{"a busy one by 96 MB", 16 * mb, 0, true, 96 * mb},
		{"cached objects do not count", 200 * mb, 100 * mb, false, 100 * mb},
		{"a large heap grows by 128 MB", 300 * mb, 50 * mb, true, 128 * mb},
		{"a larger one by half", 800 * mb, 100 * mb, false, 350 * mb},
	} {
		if got := usualHeadroom(c.live, c.cached, c.busy); got != c.headroom {
			t.Errorf("%s: %d bytes, not %d", c.what, got, c.headroom)
		}
	}
}

// TestReturnFree frees much memory, and checks that it is returned without another collection, and that the limit stays what it was.
func TestReturnFree(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const much = 128 << 20
	runtime.KeepAlive(make([]byte, much))
	runtime.GC()
	before, limit := readHeap(), debug.SetMemoryLimit(-1)
	returnFree(before)
	after := readHeap()
	if returned := before.mapped - after.mapped; returned < much/2 {
		t.Errorf("of %d bytes, %d were returned", before.mapped, returned)
	}
	if after.collections != before.collections || after.live != before.live {
		t.Error("there was a collection")
	}
	if now := debug.SetMemoryLimit(-1); now != limit {
		t.Errorf("the limit is %d, not %d", now, limit)
	}
}

// TestCollectorShare checks that the collector's time counts only if the memory limit makes it collect earlier than GOGC.
func TestCollectorShare(t *testing.T) {
	const mb = 1 << 20
	before := collector{spent: 10, all: 100}
	for what, c := range map[string]struct {
		now   collector
		share float64
	}{
		"the limit is below what is live": {collector{spent: 60, all: 200, live: 200 * mb, goal: 200 * mb, limit: 150 * mb, percent: 100}, 0.5},
		"it is a little above":            {collector{spent: 60, all: 200, live: 200 * mb, goal: 210 * mb, limit: 250 * mb, percent: 100}, 0.5},
		"it is far above":                 {collector{spent: 60, all: 200, live: 200 * mb, goal: 400 * mb, limit: 900 * mb, percent: 100}, 0},
		"a large heap grows little":       {collector{spent: 60, all: 200, live: 200 * mb, goal: 210 * mb, limit: 900 * mb, percent: 5}, 0},
		"there is no limit":               {collector{spent: 60, all: 200, live: 200 * mb, goal: 210 * mb, limit: math.MaxInt64, percent: 100}, 0},
		"there was no collection":         {collector{spent: 10, all: 100, live: 200 * mb, goal: 200 * mb, limit: 150 * mb, percent: 100}, 0},
	} {
		if got := c.now.shareSince(before); got != c.share {
			t.Errorf("%s: %g, not %g", what, got, c.share)
		}
	}
}

// TestPressure checks that one episode is reported once, even if it varies, and again if more memory is needed than was said.
func TestPressure(t *testing.T) {
	const mb = 1 << 20
	var p pressure
	for i, step := range []struct {
		share, live float64
		begins      bool
	}{
		{0, 100, false}, {0.3, 100, true}, {0.7, 100, false}, {0.06, 100, false}, {0.2, 200, false},
		{0.01, 100, false}, {0.06, 100, false}, {0.3, 100, true}, {0.3, 231, false}, {0.3, 232, true}, {0.3, 232, false},
	} {
		if got := p.begins(step.share, step.live*mb); got != step.begins {
			t.Errorf("step %d: %t", i, got)
		}
	}
}
