package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/sqube/sqube/test/robustness/history"
)

// Logs are the logs of all resources, by their plurals.
type Logs map[string]*Log

// State is what there was of a resource at some revision, by the objects' names.
type State map[string]history.Object

// Log is what happened to the objects of a resource, as the watches show it.
type Log struct {
	// Changes are all that were seen, in the order of their revisions.
	Changes []Change
	// spans are the ranges of revisions within which no change is missing, in order and apart from each other.
	spans []span
	// bases are states that lists and the beginnings of watches show, by revision.
	bases map[uint64]baseline
}

// baseline is a state, and when it was known.
type baseline struct {
	State
	at time.Duration
}

// Change is an event, and the object before it.
type Change struct {
	history.Event
	// Before is the object that was changed, nil where there was none.
	Before *history.Object
	// Known says that Before is known. It is not where a gap without a list precedes.
	Known bool
}

// span is a range of revisions: the changes behind from, up to and including to.
type span struct{ from, to uint64 }

// Rebuild puts the logs together. Its errors are changes that two watches show in two ways, and changes that do not follow
// from the ones before.
func Rebuild(h *history.History) (Logs, []error) {
	logs := Logs{}
	of := func(resource string) *Log {
		if logs[resource] == nil {
			logs[resource] = &Log{bases: map[uint64]baseline{}}
		}
		return logs[resource]
	}
	for _, l := range h.Lists {
		if l.Group == "" {
			of(l.Resource).learn(l.Version(), baseline{objectsOf(l), l.Return})
		}
	}
	seen := map[string]map[uint64]history.Event{}
	var errs []error
	for _, w := range h.Watches {
		log := of(w.Resource)
		if w.Group != "" {
			continue
		}
		if seen[w.Resource] == nil {
			seen[w.Resource] = map[uint64]history.Event{}
		}
		from, events, ok := follows(w)
		if !ok {
			continue
		}
		if w.Initial {
			log.learn(from, baseline{initialState(w), w.Events[endOfInitial(w)].At})
		}
		to := from
		for _, e := range events {
			to = max(to, e.Object.Version)
			if e.Type == history.Bookmark {
				continue
			}
			other, again := seen[w.Resource][e.Object.Version]
			switch {
			case !again:
				seen[w.Resource][e.Object.Version] = e
			case other.Type != e.Type || other.Object != e.Object:
				errs = append(errs, fmt.Errorf("%s: one watch shows %s, another %s", w.Resource, event(other), event(e)))
			case e.At < other.At:
				seen[w.Resource][e.Object.Version] = e
			}
		}
		log.spans = append(log.spans, span{from, to})
	}
	for resource, log := range logs {
		for _, e := range seen[resource] {
			log.Changes = append(log.Changes, Change{Event: e})
		}
		slices.SortFunc(log.Changes, func(a, b Change) int { return cmp.Compare(a.Object.Version, b.Object.Version) })
		log.merge()
		for _, err := range log.link() {
			errs = append(errs, fmt.Errorf("%s: %w", resource, err))
		}
	}
	return logs, errs
}

// follows returns the revision behind which a watch shows changes, and the events that do. There is none while the state
// with which it began has not ended.
func follows(w *history.Watch) (from uint64, events []history.Event, ok bool) {
	if !w.Initial {
		return w.From, w.Events, true
	}
	end := endOfInitial(w)
	if end < 0 {
		return 0, nil, false
	}
	return w.Events[end].Object.Version, w.Events[end+1:], true
}

// endOfInitial returns the index of the bookmark that ends the state with which a watch began, or -1.
func endOfInitial(w *history.Watch) int {
	return slices.IndexFunc(w.Events, func(e history.Event) bool { return e.EndsInitial })
}

// initialState is the state with which a watch began, once that has ended.
func initialState(w *history.Watch) State {
	state := State{}
	for _, e := range w.Events {
		switch {
		case e.EndsInitial:
			return state
		case e.Type == history.Deleted:
			delete(state, e.Object.Name)
		case e.Type != history.Bookmark:
			state[e.Object.Name] = e.Object
		}
	}
	return state
}

func objectsOf(l *history.List) State {
	state := State{}
	for _, page := range l.Pages {
		for _, o := range page.Objects {
			state[o.Name] = o
		}
	}
	return state
}

// learn notes the state at a revision, unless one was known earlier.
func (l *Log) learn(version uint64, b baseline) {
	if other, ok := l.bases[version]; !ok || b.at < other.at {
		l.bases[version] = b
	}
}

// merge joins spans that touch.
func (l *Log) merge() {
	slices.SortFunc(l.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var merged []span
	for _, s := range l.spans {
		if last := len(merged) - 1; last >= 0 && s.from <= merged[last].to {
			merged[last].to = max(merged[last].to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	l.spans = merged
}

// link finds the object before each change.
func (l *Log) link() (errs []error) {
	for _, s := range l.spans {
		base, known := l.bases[s.from]
		if !known {
			continue
		}
		state := maps.Clone(base.State)
		for i := l.after(s.from); i < l.after(s.to); i++ {
			c := &l.Changes[i]
			c.Known = true
			if before, exists := state[c.Object.Name]; exists {
				c.Before = &before
			}
			switch {
			case c.Type == history.Added && c.Before != nil, c.Type != history.Added && c.Before == nil,
				c.Type != history.Added && c.Before.UID != c.Object.UID:
				errs = append(errs, fmt.Errorf("%s cannot follow on %v", event(c.Event), c.Before))
			}
			if c.Type == history.Deleted {
				delete(state, c.Object.Name)
			} else {
				state[c.Object.Name] = c.Object
			}
		}
	}
	return errs
}

// after returns the index of the first change behind a revision.
func (l *Log) after(version uint64) int {
	return sort.Search(len(l.Changes), func(i int) bool { return l.Changes[i].Object.Version > version })
}

// tellsAllSince tells whether the log has all changes of requests that were called at some time or later: there is no gap
// since, and the state before its first change was known by then.
func (l *Log) tellsAllSince(call time.Duration) bool {
	if len(l.spans) == 0 {
		return false
	}
	base, known := l.bases[l.spans[len(l.spans)-1].from]
	return known && base.at <= call
}

// Covers tells whether the log has the change that made a revision, if one did.
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
