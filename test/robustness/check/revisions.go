package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sqube/sqube/test/robustness/history"
)

// Revisions checks that no resourceVersion is handed out twice, and that they increase: a write gets a higher one than any
// client received before the request, and a list or watch of the newest state gets no lower one.
func Revisions(h *history.History, logs Logs) []error {
	return append(unique(h, logs), rising(h)...)
}

// unique checks the writes and changes of all resources together, since they share the counter.
func unique(h *history.History, logs Logs) (errs []error) {
	type use struct {
		key  history.Key
		mark string
		gone bool
	}
	users := map[uint64]use{}
	note := func(version uint64, u use) {
		if other, taken := users[version]; taken && other != u {
			errs = append(errs, fmt.Errorf("resourceVersion %d was handed out twice: %+v and %+v", version, other, u))
		}
		users[version] = u
	}
	for _, o := range h.Operations {
		if o.Outcome == history.Done && o.Writes() && o.Verb != history.Delete {
			note(o.Object.Version, use{o.Key, o.Mark, false})
		}
	}
	for resource, log := range logs {
		for _, c := range log.Changes {
			note(c.Object.Version, use{history.Key{Resource: resource, Name: c.Object.Name}, c.Object.Mark, c.Type == history.Deleted})
		}
	}
	return errs
}

// sighting is the moment at which a client received a revision, or a request that must return a higher one.
type sighting struct {
	at      time.Duration
	version uint64
	request func() string // nil: received
	above   bool          // the same is too low as well
}

func rising(h *history.History) (errs []error) {
	var all []sighting
	told := func(at time.Duration, version uint64) { all = append(all, sighting{at: at, version: version}) }
	asked := func(at time.Duration, version uint64, above bool, request func() string) {
		all = append(all, sighting{at, version, request, above})
	}
	for _, o := range h.Operations {
		if o.Outcome != history.Done || o.Verb == history.Delete {
			continue
		}
		told(o.Return, o.Object.Version)
		if o.Writes() {
			asked(o.Call, o.Object.Version, true, func() string { return describe(o) })
		}
	}
	for _, l := range h.Lists {
		told(l.Return, l.Version())
		if l.Asked == 0 && !l.Cached {
			asked(l.Call, l.Version(), false, func() string {
				return fmt.Sprintf("list of %s by client %d at server %d, %s to %s", l.Resource, l.Client, l.Pages[0].Server, l.Call, l.Return)
			})
		}
	}
	for _, w := range h.Watches {
		for _, e := range w.Events {
			if e.EndsInitial && w.From == 0 {
				asked(w.Call, e.Object.Version, false, func() string {
					return fmt.Sprintf("watch of %s with initial state by client %d at server %d, %s", w.Resource, w.Client, w.Server, w.Call)
				})
			}
			told(e.At, e.Object.Version)
		}
	}
	// At the same moment, requests come first: they may have been processed before the revisions received then were known.
	slices.SortStableFunc(all, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(boolToInt(a.request == nil), boolToInt(b.request == nil)))
	})
	var floor uint64
	for _, s := range all {
		switch {
		case s.request == nil:
			floor = max(floor, s.version)
		case s.version < floor || s.above && s.version == floor:
			errs = append(errs, fmt.Errorf("%s: returned resourceVersion %d, although %d was already known", s.request(), s.version, floor))
		}
	}
	return errs
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
