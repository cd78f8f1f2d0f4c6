package check

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/sqube/sqube/test/robustness/history"
)

// Logs are the logs of all resources, by their plurals.
type Logs map[string]*Log

// State is the objects of a resource at some revision, by name.
type State map[string]history.Object

// Log is the changes to the objects of a resource, as shown by the watches.
type Log struct {
	// Changes are all observed changes, sorted by revision.
	Changes []Change
	// spans are the ranges of revisions without missing changes, sorted and disjoint.
	spans []span
	// bases are the states from lists and the initial events of watches, by revision.
	bases map[uint64]baseline
	// seen are the changes by revision, while the log is built.
	seen map[uint64]history.Event
}

// baseline is a state, and when it was known.
type baseline struct {
	State
	at time.Duration
}

// Change is an event, and the object before it.
type Change struct {
	history.Event
	// Before is the object before the change, nil if there was none.
	Before *history.Object
	// Known is true if Before is known. It is false after a gap without a list.
	Known bool
}

// span is a range of revisions: the changes after from, up to and including to.
type span struct{ from, to uint64 }

// after returns the index of the first change after a revision.
func (l *Log) after(version uint64) int {
	return sort.Search(len(l.Changes), func(i int) bool { return l.Changes[i].Object.Version > version })
}

// tellsAllSince reports whether the log has all changes by requests sent at some time or later: there is no gap since then, and
// the state before its first change was known by then.
func (l *Log) tellsAllSince(call time.Duration) bool {
	if len(l.spans) == 0 {
		return false
	}
	base, known := l.bases[l.spans[len(l.spans)-1].from]
	return known && base.at <= call
}

// Covers reports whether the log has the change of a revision, if there was one.
func (l *Log) Covers(version uint64) bool {
	return slices.ContainsFunc(l.spans, func(s span) bool { return s.from < version && version <= s.to })
}

// State returns the state at a revision, if the log knows it.
func (l *Log) State(version uint64) (State, bool) {
	for _, s := range l.spans {
		base, known := l.bases[s.from]
		if version < s.from || version > s.to || !known {
			continue
		}
		state := maps.Clone(base.State)
		for _, c := range l.Changes[l.after(s.from):l.after(version)] {
			if c.Type == history.Deleted {
				delete(state, c.Object.Name)
			} else {
				state[c.Object.Name] = c.Object
			}
		}
		return state, true
	}
	return nil, false
}

func event(e history.Event) string {
	return fmt.Sprintf("%s %s in version %d (uid %s, mark %q)", e.Type, e.Object.Name, e.Object.Version, e.Object.UID, e.Object.Mark)
}
