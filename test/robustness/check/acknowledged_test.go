package check

import (
	"testing"

	"github.com/sqube/sqube/test/robustness/history"
)

func TestAcknowledgedNotices(t *testing.T) {
	// everywhere changes each event of an object in a version.
	everywhere := func(h *history.History, version uint64, change func(*history.Event)) {
		for _, w := range h.Watches {
			for i := range w.Events {
				if e := &w.Events[i]; e.Type != history.Bookmark && e.Object.Version == version {
					change(e)
				}
			}
		}
	}
	run(t, []broken{
		{"a write that no watch has seen", Acknowledged, func(h *history.History) {
			h.Operations = append(h.Operations, write(history.Create, 1, 2, obj("w", 13, "m8")))
		}, "no watch has seen it"},
		{"a deletion that no watch has seen", Acknowledged, func(h *history.History) {
			h.Operations = append(h.Operations, remove(9, 10, obj("x", 0, "")))
		}, "no watch has seen the deletion"},
		{"a write in another version than acknowledged", Acknowledged, func(h *history.History) { h.Operations[2].Object.Version = 12 }, "acknowledged as"},
		{"a rejected write that took effect", Acknowledged, func(h *history.History) { but(h.Operations[7], history.Conflict) }, "but it took effect"},
		{"a write that took effect before its call", Acknowledged, func(h *history.History) { h.Operations[7].Call = at(13) }, "but it took effect"},
		{"a write that took effect twice", Acknowledged, func(h *history.History) {
			everywhere(h, 14, func(e *history.Event) { e.Object.Mark = "m3" })
		}, "took effect twice"},
		{"a change that no client requested", Acknowledged, func(h *history.History) { h.Operations[7].Mark = "m9" }, "no client requested"},
		{"a deletion that no client requested", Acknowledged, func(h *history.History) { but(h.Operations[6], history.Absent) }, "no client requested"},
		{"a change that does not follow from the one before", Acknowledged, func(h *history.History) {
			everywhere(h, 13, func(e *history.Event) { e.Type = history.Added })
		}, "cannot follow"},
		{"two watches that differ", Acknowledged, func(h *history.History) { h.Watches[2].Events[2].Object.Mark = "m9" }, "one watch shows"},
	})
}
