package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sqube/sqube/test/robustness/history"
)

// searchTimeout bounds the search for an order of the operations on one object. It takes milliseconds, except where a gap in
// the log leaves many outcomes open; what isn't decided by then passes.
const searchTimeout = 10 * time.Second

// Linearizable checks that the operations on each object are as if each had taken effect at one moment between its call
// and its return, and in no way else. An operation whose outcome is not known may have taken effect at any time after its
// call, or never; where the log tells which, that is what must fit.
func Linearizable(h *history.History, logs Logs) (errs []error) {
	operations := map[history.Key][]porcupine.Operation{}
	evidence := gather(h, logs)
	for _, o := range h.Operations {
		if s, counts := evidence.settle(o); counts {
			operations[o.Key] = append(operations[o.Key], porcupine.Operation{
				ClientId: o.Client, Input: s, Output: s, Call: int64(o.Call), Return: int64(s.until),
			})
		}
	}
	for _, key := range sortedKeys(operations) {
		if porcupine.CheckOperationsTimeout(register, operations[key], searchTimeout) == porcupine.Illegal {
			errs = append(errs, fmt.Errorf("%s: there is no order of its %d operations in which each could have been answered as it was%s",
				key, len(operations[key]), firstUnordered(operations[key])))
		}
	}
	return errs
}

// firstUnordered says which operation is the first that fits in no order.
func firstUnordered(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	i := sort.Search(len(operations), func(i int) bool {
		part := slices.Clone(operations[:i+1])
		for _, o := range operations[i+1:] {
			// Writes that were under way then may have had their effect.
			if s := *o.Input.(*settled); s.outcome == history.Done && s.Writes() && o.Call <= operations[i].Return {
				s.maybe = true
				o.Input, o.Return = &s, math.MaxInt64
				part = append(part, o)
			}
		}
		return porcupine.CheckOperationsTimeout(register, part, searchTimeout) == porcupine.Illegal
	})
	if i == len(operations) {
		return ""
	}
	s := operations[i].Input.(*settled)
	return fmt.Sprintf("; the first that fits in none: %s: %s, %+v", describe(s.Operation), s.outcome, s.object)
}

func sortedKeys[V any](m map[history.Key]V) []history.Key {
	keys := make([]history.Key, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b history.Key) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

// settled is an operation with what the rest of the history adds to the client's knowledge of it.
type settled struct {
	*history.Operation
	outcome history.Outcome
	object  history.Object
	until   time.Duration // when it had taken effect at the latest
	maybe   bool          // it may have had no effect
	// deletes are the versions of the deletions by UID, of which an unknown delete may have made those in open alone, unless
	// that is nil.
	deletes map[string]uint64
	open    map[string]bool
}

// object is the state of the model: one object, or its absence. A version of 0 and a UID of "" are not known.
type object struct {
	exists    bool
	uid, mark string
	version   uint64
}

// register is the model of one object.
var register = porcupine.Model{
	Init: func() any { return object{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := input.(*settled), state.(object)
		if s.maybe && !s.fits(o) {
			return true, o
		}
		return s.step(o)
	},
}

// matches tells whether the object is what the operation wants to replace.
func (s *settled) matches(o object) bool {
	return (s.IfVersion == 0 || o.version == 0 || s.IfVersion == o.version) && (s.IfUID == "" || o.uid == "" || s.IfUID == o.uid)
}

// fits tells whether the operation can be done on the object.
func (s *settled) fits(o object) bool {
	switch s.Verb {
	case history.Create:
		return !o.exists
	case history.Apply:
		return true
	case history.Delete:
		return o.exists && s.matches(o) && (s.open == nil || o.uid == "" || s.open[o.uid])
	default:
		return o.exists && s.matches(o)
	}
}

// step tells whether the operation can be answered as it was when the object is o, and returns what it makes of it.
func (s *settled) step(o object) (bool, object) {
	conditional := s.IfVersion != 0 || s.IfUID != ""
	switch s.outcome {
	case history.Absent:
		return !o.exists, o
	case history.Exists:
		return o.exists || s.Verb == history.Apply, o
	case history.Conflict:
		// Without a condition it says that others were faster, however often it was tried.
		return !conditional || !o.exists || o.version == 0 || o.uid == "" || !s.matches(o), o
	}
	if s.Verb == history.Get {
		same := o.exists && o.mark == s.object.Mark && (o.version == 0 || o.version == s.object.Version) && (o.uid == "" || o.uid == s.object.UID)
		return same, object{true, s.object.UID, s.object.Mark, s.object.Version}
	}
	if !s.fits(o) {
		return false, o
	}
	if s.object.Version != 0 && s.object.Version <= o.version {
		return false, o
	}
	known := o.uid != "" && s.object.UID != ""
	if s.Verb == history.Delete {
		return !known || o.uid == s.object.UID, object{version: max(o.version, s.deletes[o.uid])}
	}
	if o.exists && known && o.uid != s.object.UID {
		return false, o
	}
	return true, object{true, s.object.UID, s.Mark, s.object.Version}
}

// evidence is what a history tells of writes, beside their answers.
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

// settle returns the operation as it is to be checked. It does not count when it surely had no effect and tells nothing.
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

// told tells whether the log would have shown any effect of the operation.
func (e *evidence) told(o *history.Operation) bool {
	log := e.logs[o.Key.Resource]
	return log != nil && log.tellsAllSince(o.Call)
}
