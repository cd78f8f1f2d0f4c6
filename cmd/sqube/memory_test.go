package main

import "testing"

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
