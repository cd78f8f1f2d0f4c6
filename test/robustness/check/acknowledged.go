package check

import (
	"fmt"

	"github.com/sqube/sqube/test/robustness/history"
)

// Acknowledged checks that every acknowledged write is in the log as acknowledged, and that the log has nothing else: a client
// requested each change, the request was not rejected, and it took effect only once. Objects without a mark were not written by
// the clients.
func Acknowledged(h *history.History, logs Logs) (errs []error) {
	fail := func(o *history.Operation, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", describe(o), fmt.Sprintf(format, args...)))
	}
	asked := map[string]*history.Operation{} // writes by mark
	deletions := map[history.Key][]*history.Operation{}
	for _, o := range h.Operations {
		switch {
		case o.Verb == history.Delete:
			deletions[o.Key] = append(deletions[o.Key], o)
		case o.Writes():
			asked[o.Mark] = o
		}
	}
	made := map[string]Change{} // by mark
	gone := map[string]Change{} // by UID
	for resource, log := range logs {
		for _, c := range log.Changes {
			if c.Object.Mark == "" {
				continue
			}
			key := history.Key{Resource: resource, Name: c.Object.Name}
			if c.Type == history.Deleted {
				gone[c.Object.UID] = c
				if !anyCould(deletions[key], c) {
					errs = append(errs, fmt.Errorf("%s: %s, which no client requested", key, event(c.Event)))
				}
				continue
			}
			if other, twice := made[c.Object.Mark]; twice {
				errs = append(errs, fmt.Errorf("%s: the write %q took effect twice: %s, %s", key, c.Object.Mark, event(other.Event), event(c.Event)))
			}
			made[c.Object.Mark] = c
			if o := asked[c.Object.Mark]; o == nil {
				errs = append(errs, fmt.Errorf("%s: %s, which no client requested", key, event(c.Event)))
			} else if o.Key != key || o.Outcome != history.Done && o.Outcome != history.Unknown || c.At < o.Call {
				fail(o, "returned %s (%s), but it took effect: %s", o.Outcome, o.Error, event(c.Event))
			}
		}
	}
	for _, o := range h.Operations {
		log := logs[o.Key.Resource]
		if o.Outcome != history.Done || !o.Writes() || log == nil {
			continue
		}
		if o.Verb == history.Delete {
			if _, ok := gone[o.Object.UID]; !ok && log.tellsAllSince(o.Call) {
				fail(o, "acknowledged, but no watch has seen the deletion of uid %s", o.Object.UID)
			}
			continue
		}
		c, ok := made[o.Mark]
		switch {
		case !ok && log.Covers(o.Object.Version):
			fail(o, "acknowledged with resourceVersion %d, but no watch has seen it", o.Object.Version)
		case ok && c.Object != o.Object:
			fail(o, "acknowledged as %+v, but watches show %+v", o.Object, c.Object)
		}
	}
	return errs
}

// anyCould reports whether one of the deletions may have made the change.
func anyCould(deletions []*history.Operation, c Change) bool {
	for _, o := range deletions {
		done := o.Outcome == history.Done && o.Object.UID == c.Object.UID
		maybe := o.Outcome == history.Unknown && (o.IfUID == "" || o.IfUID == c.Object.UID)
		if (done || maybe) && o.Call <= c.At {
			return true
		}
	}
	return false
}
