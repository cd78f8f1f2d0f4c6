package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/metrics"
	"time"
)

const (
	// pressureInterval is for how long at least the work of the collector is measured.
	pressureInterval = 10 * time.Second
	// pressureShare is the part of all processors' time from which on the collector takes too much. Below half of it, that has ended.
	pressureShare = 0.1
)

// pressure is whether the collector takes too much, and how many bytes were said to be enough.
type pressure struct {
	high   bool
	enough float64
}

// begins takes the collector's part of the processors' time, and reports whether it has become too much, or what is live has outgrown
// what was said to be enough.
func (p *pressure) begins(share, live float64) bool {
	before := *p
	p.high = share >= pressureShare || before.high && share >= pressureShare/2
	if !p.high || before.high && live < before.enough {
		return false
	}
	p.enough = enoughFor(live)
	return true
}

// enoughFor returns a memory limit that leaves the collector room if that many bytes are live.
func enoughFor(live float64) float64 { return 2*live + minHeadroom }

// watchMemoryLimit warns when Go's memory limit is so low that the collector takes a large part of the processors' time to keep it, or
// fails to: once until that has ended, or until even more memory is needed. It returns when ctx ends.
func watchMemoryLimit(ctx context.Context) {
	collected := make(chan struct{}, 1)
	notifyCollections(ctx, collected)
	var high pressure
	for before := readCollector(); ; {
		select {
		case <-ctx.Done():
			return
		case <-collected: // an idle server is not woken up
		}
		now := readCollector()
		if now.at.Sub(before.at) < pressureInterval {
			continue
		}
		if share := now.shareSince(before); high.begins(share, now.live) {
			slog.Warn(now.warning(share))
		}
		before = now
	}
}

// collector has the runtime's statistics of the collector.
type collector struct {
	at                time.Time
	spent, all        float64 // processor time in seconds, of the collector and as a whole, up to the last collection
	live, goal, limit float64 // bytes: live at the last collection, at which the next one is, and at which Go's memory is limited
	percent           float64 // GOGC
}

func readCollector() collector {
	samples := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}, {Name: "/gc/gomemlimit:bytes"}, {Name: "/gc/gogc:percent"},
	}
	metrics.Read(samples)
	bytes := func(i int) float64 { return float64(samples[i].Value.Uint64()) }
	return collector{
		at: time.Now(), spent: samples[0].Value.Float64(), all: samples[1].Value.Float64(),
		live: bytes(2), goal: bytes(3), limit: bytes(4), percent: bytes(5),
	}
}

// shareSince returns the part of the processors' time that the collector took since before, or 0 if the next collection comes no earlier
// than it would without the limit.
func (c collector) shareSince(before collector) float64 {
	const slack = 0.9 // the goal counts the roots, too, and may be older than GOGC
	if c.limit == math.MaxInt64 || c.goal >= slack*c.live*(1+c.percent/100) || c.all <= before.all {
		return 0
	}
	return (c.spent - before.spent) / (c.all - before.all)
}

// warning says what is wrong and what to do.
func (c collector) warning(share float64) string {
	const mib = 1 << 20
	enough := enoughFor(c.live) / mib
	remedy := fmt.Sprintf("raise GOMEMLIMIT to %.0fMiB or more", enough)
	if os.Getenv("GOMEMLIMIT") == "" {
		remedy = fmt.Sprintf("give the machine or its cgroup at least %.0f MiB", enough/limitShare)
	}
	return fmt.Sprintf("garbage collection takes %.0f %% of the CPU, since the memory limit of %.0f MiB is too close to the %.0f MiB in use: %s, or lower --cache-size",
		100*share, c.limit/mib, c.live/mib, remedy)
}
