package fleet

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// naps are when clusters that are awake may fall asleep. There is one timer for all of them.
type naps struct {
	mu      sync.Mutex
	queue   napQueue
	changed chan struct{} // holds a value when the first one may have changed
}

type nap struct {
	at      time.Time
	cluster *cluster
	running *running
}

func newNaps() *naps { return &naps{changed: make(chan struct{}, 1)} }

// add has the cluster looked at when it may be idle.
func (n *naps) add(c *cluster, r *running) {
	if r.after > 0 {
		n.push(nap{time.Now().Add(r.after), c, r})
	}
}

func (n *naps) push(one nap) {
	n.mu.Lock()
	heap.Push(&n.queue, one)
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// run looks at each cluster when it is due, until ctx ends.
func (n *naps) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		case <-timer.C:
		}
		for {
			one, wait, ok := n.due(time.Now())
			if !ok {
				if wait > 0 {
					timer.Reset(wait)
				}
				break
			}
			if again, asleep := one.running.nap(time.Now()); !asleep {
				one.at = again
				n.push(one)
			}
		}
	}
}

// due takes the first one if it is due. Otherwise it returns how long to wait, 0 if there is none.
func (n *naps) due(now time.Time) (one nap, wait time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		return nap{}, 0, false
	}
	if wait := n.queue[0].at.Sub(now); wait > 0 {
		return nap{}, wait, false
	}
	return heap.Pop(&n.queue).(nap), 0, true
}

// napQueue implements heap.Interface.
type napQueue []nap

func (q napQueue) Len() int           { return len(q) }
func (q napQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q napQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *napQueue) Push(x any)        { *q = append(*q, x.(nap)) }
func (q *napQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
