package check

import (
	"math"
	"time"

	"github.com/sqube/sqube/test/robustness/history"
)

// evidence is what a history shows of writes, apart from their responses.
type evidence struct {
	logs    Logs
	writes  map[string]history.Object       // what was seen of a write, by mark
	seen    map[string]time.Duration        // when first
	deletes map[string]uint64               // the revision in which the object with a UID was deleted
	gone    map[string]time.Duration        // when that was first seen
	open    map[history.Key]map[string]bool // the UIDs whose deletion was seen and not acknowledged
}

func gather(h *history.History, logs Logs) *evidence {
	e := &evidence{
		logs, map[string]history.Object{}, map[string]time.Duration{}, map[string]uint64{}, map[string]time.Duration{},
		map[history.Key]map[string]bool{},
	}
	see := func(at time.Duration, o history.Object) {
		if before, again := e.seen[o.Mark]; !again || at < before {
			e.writes[o.Mark], e.seen[o.Mark] = o, at
		}
	}
	acknowledged := map[string]bool{} // deletions by UID
	for _, o := range h.Operations {
		if o.Outcome == history.Done && o.Verb == history.Delete {
			acknowledged[o.Object.UID] = true
		} else if o.Outcome == history.Done {
			see(o.Return, o.Object)
		}
	}
	for _, l := range h.Lists {
		for _, o := range objectsOf(l) {
			see(l.Return, o)
		}
	}
	for _, w := range h.Watches {
		for _, event := range w.Events {
			if event.Type == history.Added || event.Type == history.Modified {
				see(event.At, event.Object)
			}
		}
	}
	for resource, log := range logs {
		for _, c := range log.Changes {
			if c.Type != history.Deleted {
				continue
			}
			e.deletes[c.Object.UID], e.gone[c.Object.UID] = c.Object.Version, c.At
			if key := (history.Key{Resource: resource, Name: c.Object.Name}); !acknowledged[c.Object.UID] {
				if e.open[key] == nil {
					e.open[key] = map[string]bool{}
				}
				e.open[key][c.Object.UID] = true
			}
		}
	}
	return e
}

// settle returns the operation to check. It does not count if it certainly had no effect and proves nothing.
func (e *evidence) settle(o *history.Operation) (s *settled, counts bool) {
	s = &settled{Operation: o, outcome: o.Outcome, object: o.Object, until: o.Return, deletes: e.deletes}
	unknown := o.Outcome == history.Unknown
	switch {
	case o.Outcome == history.Unsent, unknown && !o.Writes():
		return nil, false
	case unknown && o.Verb == history.Delete:
		s.outcome, s.maybe, s.until = history.Done, true, math.MaxInt64
		if e.told(o) {
			s.open = e.open[o.Key]
			return s, len(s.open) > 0 && (o.IfUID == "" || s.open[o.IfUID])
		}
	case unknown:
		s.outcome, s.object = history.Done, e.writes[o.Mark]
		if at, seen := e.seen[o.Mark]; seen {
			s.until = max(o.Call, at)
		} else if e.told(o) {
			return nil, false
		} else {
			s.maybe, s.until = true, math.MaxInt64
		}
	case o.Outcome == history.Done && o.Verb == history.Delete:
		if at, seen := e.gone[o.Object.UID]; seen {
			s.until = max(o.Call, min(o.Return, at))
		}
	case o.Outcome == history.Done && o.Writes():
		s.until = max(o.Call, min(o.Return, e.seen[o.Mark]))
	}
	return s, true
}

// told reports whether the log would have shown any effect of the operation.
func (e *evidence) told(o *history.Operation) bool {
	log := e.logs[o.Key.Resource]
	return log != nil && log.tellsAllSince(o.Call)
}
