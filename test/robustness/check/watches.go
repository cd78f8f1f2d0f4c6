package check

import (
	"fmt"
	"slices"

	"github.com/sqube/sqube/test/robustness/history"
)

// Watches checks that each watch shows every change in its range that its selector matches, once and in order, and that no
// bookmark passes a change that has not been sent. A watch with initial events shows the state at the revision of the bookmark
// that ends them.
func Watches(h *history.History, logs Logs) (errs []error) {
	for _, w := range h.Watches {
		if err := stream(w, logs[w.Resource]); err != nil {
			errs = append(errs, fmt.Errorf("watch of %s (group %q, from %d) by client %d at server %d, %s: %w",
				w.Resource, w.Group, w.From, w.Client, w.Server, w.Call, err))
		}
	}
	return errs
}

func stream(w *history.Watch, log *Log) error {
	at, events, begun := follows(w)
	if !begun {
		return nil
	}
	if w.Initial {
		if at < w.From {
			return fmt.Errorf("its state has version %d", at)
		}
		if state, known := log.State(at); known {
			if err := same(initialState(w), selected(state, w.Group)); err != nil {
				return fmt.Errorf("its state at %d %w", at, err)
			}
		}
	}
	for _, e := range events {
		if e.EndsInitial {
			return fmt.Errorf("a state ends at %d, but had already ended or was not requested", e.Object.Version)
		}
		next, known := log.next(at, e.Object.Version, w.Group)
		switch {
		case e.Type == history.Bookmark:
			if e.Object.Version < at {
				return fmt.Errorf("the bookmark %d comes after %d was sent", e.Object.Version, at)
			}
			if known && next != nil && next.Object.Version <= e.Object.Version {
				return fmt.Errorf("the bookmark %d comes before %s", e.Object.Version, event(*next))
			}
		case e.Object.Version <= at:
			return fmt.Errorf("%s comes after %d was sent", event(e), at)
		case !known:
		case next == nil:
			return fmt.Errorf("%s comes, which no other watch has seen", event(e))
		case next.Object.Version != e.Object.Version || next.Type != e.Type || next.Object.Name != e.Object.Name || next.Object.UID != e.Object.UID:
			return fmt.Errorf("after %d comes %s instead of %s", at, event(e), event(*next))
		case e.Type != history.Deleted && next.Object != e.Object:
			return fmt.Errorf("%+v comes instead of %+v", e.Object, next.Object)
		}
		at = e.Object.Version
	}
	return nil
}

// next returns the first change after version that a watch of a group sees, as it sees it, or nil if there is none up to last.
// It is not known if the log has a gap in between, or if a gap hides what the change replaced.
func (l *Log) next(version, last uint64, group string) (next *history.Event, known bool) {
	at := slices.IndexFunc(l.spans, func(s span) bool { return s.from <= version && version <= s.to })
	if at < 0 {
		return nil, false
	}
	end := l.spans[at].to
	for _, c := range l.Changes[l.after(version):l.after(end)] {
		if group == "" {
			return &c.Event, true
		}
		if !c.Known {
			return nil, false
		}
		was := c.Before != nil && c.Before.Group == group
		is := c.Type != history.Deleted && c.Object.Group == group
		e := c.Event
		switch {
		case was && is:
			e.Type = history.Modified
		case is:
			e.Type = history.Added
		case was:
			e.Type = history.Deleted
		default:
			continue
		}
		return &e, true
	}
	return nil, last <= end
}
