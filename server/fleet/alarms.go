package fleet

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// alarms are when clusters, asleep or awake, and deleted databases are looked at again. There is one timer for all of them.
type alarms struct {
	mu      sync.Mutex
	queue   alarmQueue
	changed chan struct{} // holds a value when the first one may have changed
}

// alarm is one of a ringer. The zero value is not set.
type alarm struct {
	at     time.Time
	ringer ringer
	place  int // in the queue, from 1 on; 0 if it is not set
}

// ringer does something at a time, and quickly. It can set its alarm again.
type ringer interface{ ring(now time.Time) }

func newAlarms() *alarms { return &alarms{changed: make(chan struct{}, 1)} }

// set sets an alarm, also if it is set for another time. The zero time unsets it.
func (a *alarms) set(one *alarm, at time.Time, by ringer) {
	a.mu.Lock()
	one.at, one.ringer = at, by
	switch {
	case one.place > 0 && at.IsZero():
		heap.Remove(&a.queue, one.place-1)
	case one.place > 0:
		heap.Fix(&a.queue, one.place-1)
	case !at.IsZero():
		heap.Push(&a.queue, one)
	}
	first := one.place == 1
	a.mu.Unlock()
	if first {
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

// longestWait is how long the timer waits at most: it does not see that the clock is set forward.
const longestWait = time.Minute

// run rings each alarm when it is due, until ctx ends.
func (a *alarms) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		case <-timer.C:
		}
		for {
			due, wait := a.due(time.Now())
			if due == nil {
				if wait > 0 {
					timer.Reset(min(wait, longestWait))
				}
				break
			}
			due.ring(time.Now())
		}
	}
}

// due takes the first one if it is due. Otherwise it returns how long to wait, 0 if there is none.
func (a *alarms) due(now time.Time) (due ringer, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return nil, 0
	}
	first := a.queue[0]
	if wait := first.at.Sub(now); wait > 0 {
		return nil, wait
	}
	heap.Remove(&a.queue, 0)
	return first.ringer, 0
}

// alarmQueue implements heap.Interface.
type alarmQueue []*alarm

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q alarmQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}

func (q *alarmQueue) Push(x any) {
	one := x.(*alarm)
	*q = append(*q, one)
	one.place = len(*q)
}

func (q *alarmQueue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	last.place = 0
	return last
}
