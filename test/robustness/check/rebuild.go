package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sqube/sqube/test/robustness/history"
)

// Rebuild builds the logs. Its errors are changes that two watches show differently, and changes that cannot follow the
// previous one.
func Rebuild(h *history.History) (logs Logs, errs []error) {
	logs = Logs{}
	of := func(resource string) *Log {
		if logs[resource] == nil {
			logs[resource] = &Log{bases: map[uint64]baseline{}, seen: map[uint64]history.Event{}}
		}
		return logs[resource]
	}
	for _, l := range h.Lists {
		if log := of(l.Resource); l.Group == "" {
			log.learn(l.Version(), baseline{objectsOf(l), l.Return})
		}
	}
	for _, w := range h.Watches {
		if log := of(w.Resource); w.Group == "" {
			errs = append(errs, log.add(w)...)
		}
	}
	for _, log := range logs {
		for _, e := range log.seen {
			log.Changes = append(log.Changes, Change{Event: e})
		}
		slices.SortFunc(log.Changes, func(a, b Change) int { return cmp.Compare(a.Object.Version, b.Object.Version) })
		log.merge()
		errs = append(errs, log.link()...)
	}
	return logs, errs
}

// add adds the events of a watch.
func (l *Log) add(w *history.Watch) (errs []error) {
	from, events, ok := follows(w)
	if !ok {
		return nil
	}
	if w.Initial {
		l.learn(from, baseline{initialState(w), w.Events[endOfInitial(w)].At})
	}
	to := from
	for _, e := range events {
		to = max(to, e.Object.Version)
		if e.Type == history.Bookmark {
			continue
		}
		other, again := l.seen[e.Object.Version]
		switch {
		case again && (other.Type != e.Type || other.Object != e.Object):
			errs = append(errs, fmt.Errorf("%s: one watch shows %s, another %s", w.Resource, event(other), event(e)))
		case !again || e.At < other.At:
			l.seen[e.Object.Version] = e
		}
	}
	l.spans = append(l.spans, span{from, to})
	return errs
}

// learn adds the state at a revision, unless it was known earlier.
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
				errs = append(errs, fmt.Errorf("%s cannot follow %v", event(c.Event), c.Before))
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

// follows returns the revision after which a watch shows changes, and these events. ok is false if its initial state was never
// complete.
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

// endOfInitial returns the index of the bookmark that ends the initial state of a watch, or -1.
func endOfInitial(w *history.Watch) int {
	return slices.IndexFunc(w.Events, func(e history.Event) bool { return e.EndsInitial })
}

// initialState returns the initial state of a watch, which must be complete.
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
