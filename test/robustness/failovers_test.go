package robustness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sqube/sqube/test/robustness/history"
	"github.com/sqube/sqube/test/robustness/patroni"
)

// failovers are the faults of the configurations with Patroni. Each function causes the fault and returns once others have
// taken over.
var failovers = map[kind]func(*patroni.Cluster, context.Context) error{
	"switchover":      (*patroni.Cluster).Switchover,
	"killed primary":  (*patroni.Cluster).KillPrimary,
	"killed standby":  (*patroni.Cluster).KillStandby,
	"primary cut off": (*patroni.Cluster).CutOffPrimary,
}

// failoverTimeout limits one fault and the time until the cluster is complete again.
const failoverTimeout = 3 * time.Minute

// window is the time from the beginning of a fault until all nodes were back and a write was acknowledged.
type window struct {
	kind       kind
	begin, end time.Duration
}

// failOver causes each fault, one after the other and each after the cluster has recovered from the previous one, until the
// duration is over.
func (c *cluster) failOver(ctx context.Context, seed uint64, duration time.Duration) (windows []window, err error) {
	random := newRandom(seed, "failovers")
	kinds := slices.Sorted(maps.Keys(failovers))
	for len(windows) == 0 || c.recorder.Now()-c.began < duration {
		random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, k := range kinds {
			w, err := c.endure(ctx, k)
			if err != nil {
				return windows, fmt.Errorf("%s: %w", k, err)
			}
			windows = append(windows, w)
		}
	}
	return windows, nil
}

// endure causes one fault and waits until the cluster has recovered.
func (c *cluster) endure(ctx context.Context, k kind) (w window, err error) {
	ctx, cancel := context.WithTimeout(ctx, failoverTimeout)
	defer cancel()
	w = window{kind: k, begin: c.recorder.Now()}
	c.note("begins: %s", k)
	if err := failovers[k](c.patroni, ctx); err != nil {
		return w, err
	}
	c.note("others have taken over")
	if err := c.patroni.AwaitWhole(ctx); err != nil {
		return w, err
	}
	c.note("ends:   %s", k)
	for whole := c.recorder.Now(); ; {
		w.end = c.recorder.Now()
		if times := acknowledged(c.recorder.History()); len(times) > 0 && times[len(times)-1] > whole {
			return w, nil
		}
		select {
		case <-ctx.Done():
			return w, fmt.Errorf("no write is acknowledged afterwards: %w", ctx.Err())
		case <-time.After(retryPause):
		}
	}
}

// retryPause is how long to wait between two checks for a write.
const retryPause = 200 * time.Millisecond

// acknowledged returns the times at which writes were acknowledged, in order.
func acknowledged(h *history.History) (times []time.Duration) {
	for _, o := range h.Operations {
		if o.Outcome == history.Done && o.Writes() {
			times = append(times, o.Return)
		}
	}
	slices.Sort(times)
	return times
}

// pauses are the times without an acknowledged write, by kind of fault: the longest within the window of each fault.
type pauses map[kind][]time.Duration

// add adds the pauses of a history.
func (p pauses) add(h *history.History, windows []window) {
	times := acknowledged(h)
	for _, w := range windows {
		last, longest := w.begin, time.Duration(0)
		for _, at := range times {
			if at >= w.begin && at <= w.end {
				last, longest = at, max(longest, at-last)
			}
		}
		p[w.kind] = append(p[w.kind], max(longest, w.end-last))
	}
}

func (p pauses) String() string {
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		all := slices.Sorted(slices.Values(p[k]))
		fmt.Fprintf(&text, "\n%s: p50 %.1f s, max %.1f s of %d: %.1f", k, all[(len(all)-1)/2].Seconds(), all[len(all)-1].Seconds(), len(all), seconds(all))
	}
	return text.String()
}

func seconds(all []time.Duration) (n []float64) {
	for _, d := range all {
		n = append(n, d.Seconds())
	}
	return n
}
