package main

import (
	"math"
	"testing"
)

// TestGrowthPercent checks that the heap grows by the size of what is not cached, within limits.
func TestGrowthPercent(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		what         string
		live, cached int64
		busy         bool
		percent      int
	}{
		{"a small heap grows by 32 MB", 16 * mb, 0, false, 200},
		{"a busy one by 96 MB", 16 * mb, 0, true, 600},
		{"cached objects do not count", 200 * mb, 100 * mb, false, 50},
		{"a large heap grows by 128 MB", 512 * mb, 0, true, 25},
		{"the largest heap grows", 64 << 10 * mb, 63 << 10 * mb, false, 1},
	} {
		if got := growthPercent(c.live, c.cached, c.busy); got != c.percent {
			t.Errorf("%s: %d%%, not %d%%", c.what, got, c.percent)
		}
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
