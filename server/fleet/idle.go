package fleet

import (
	"time"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

const (
	// idle is for how long nobody has requested anything when a cluster falls asleep, unless it says otherwise.
	idle = 5 * time.Minute
	// unasked is the same for a cluster that woke up by itself, and that nobody asked since.
	unasked = 10 * time.Second
	// settled is for how long nothing was written when a cluster falls asleep: its controllers have nothing to do.
	settled = 2 * time.Second
	// noteInterval is how often the status of a busy cluster is written.
	noteInterval = 5 * time.Minute
)

func sleepsAfter(o *v1alpha1.Cluster) time.Duration {
	if o.Spec.Sleep.After == nil {
		return idle
	}
	return o.Spec.Sleep.After.Duration
}

// ring implements ringer: it puts the cluster to sleep if nobody has asked for a while, and otherwise looks again later.
func (r *running) ring(now time.Time) {
	again, last := r.nap(now)
	if !last.IsZero() {
		r.cluster.noteRequest(last)
	}
	if !again.IsZero() {
		r.cluster.fleet.alarms.set(&r.alarm, again, r)
	}
}

// nap puts the cluster to sleep if nobody has asked for a while. Otherwise it returns when to look again, and the time of the last
// request if that should be noted.
func (r *running) nap(now time.Time) (again, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return again, last
	}
	if now.Sub(r.noted) >= noteInterval && r.last.After(r.noted) {
		r.noted, last = r.last, r.last
	}
	after := r.after
	if !r.asked && after > 0 {
		after = min(after, unasked)
	}
	due := r.last.Add(after)
	switch {
	case r.after == 0: // never
		return now.Add(noteInterval), last
	case r.requests > 0 || r.settling:
		return now.Add(min(after, noteInterval)), last
	case now.Before(due):
		return earlier(due, now.Add(noteInterval)), last
	}
	if writes := r.writes.Load(); writes != r.written {
		r.written = writes
		return now.Add(min(settled, after)), last
	}
	r.revision = r.newest()
	r.stopping, r.parks, r.napped = true, true, now
	r.notice()
	r.stop()
	return time.Time{}, last
}

// newest returns the newest revision of the cluster.
func (r *running) newest() int64 {
	if r.store == nil {
		return 0
	}
	return r.store.Stats().Revision
}

// change applies a new time of idleness.
func (r *running) change(after time.Duration) {
	r.mu.Lock()
	changed := r.after != after
	r.after = after
	r.mu.Unlock()
	if changed {
		r.ring(time.Now())
	}
}

// earlier returns the earlier one of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
