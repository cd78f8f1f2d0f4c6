package check

import (
	"slices"
	"testing"

	"github.com/sqube/sqube/test/robustness/history"
)

func TestWatchesNotices(t *testing.T) {
	const whole, second, third, grouped, state = 0, 1, 2, 3, 4 // of the sound history
	events := func(h *history.History, watch int) *[]history.Event { return &h.Watches[watch].Events }
	without := func(watch, i int) func(*history.History) {
		return func(h *history.History) { *events(h, watch) = slices.Delete(*events(h, watch), i, i+1) }
	}
	swapped := func(watch, i int) func(*history.History) {
		return func(h *history.History) { e := *events(h, watch); e[i], e[i+1] = e[i+1], e[i] }
	}
	run(t, []broken{
		{"a missing event", Watches, without(third, 2), "instead of"},
		{"a missing event after a bookmark", Watches, without(third, 1), "instead of"},
		{"a missing event of a selection", Watches, without(grouped, 1), "comes before"},
		{"a missing end of a selection", Watches, without(grouped, 3), "instead of DELETED x"},
		{"an event twice", Watches, func(h *history.History) { *events(h, whole) = append(*events(h, whole), (*events(h, whole))[2]) }, "after 13 was sent"},
		{"events out of order", Watches, swapped(second, 1), "after 14 comes"},
		{"an event from before its range", Watches, func(h *history.History) { h.Watches[third].From = 12 }, "after 12 was sent"},
		{"an event that is not selected", Watches, func(h *history.History) {
			*events(h, grouped) = slices.Insert(*events(h, grouped), 1, ev(4, history.Added, in("b", obj("y", 12, "m2"))))
		}, "instead of"},
		{"the end of a selection that is shown as a change", Watches, func(h *history.History) { (*events(h, grouped))[3].Type = history.Modified }, "instead of DELETED x"},
		{"a bookmark that passes an event", Watches, func(h *history.History) { (*events(h, third))[0].Object.Version = 12 }, "the bookmark 12 comes before"},
		{"a bookmark that passes the event after it", Watches, swapped(third, 0), "the bookmark 11 comes after 12"},
		{"a state without an object", Watches, without(state, 0), "is missing"},
		{"a state with an older object", Watches, func(h *history.History) { (*events(h, state))[0].Object = obj("x", 13, "m3") }, "instead of"},
		{"a state older than requested", Watches, func(h *history.History) { h.Watches[state].From = 15 }, "its state has version 14"},
		{"a state that ends twice", Watches, func(h *history.History) { *events(h, state) = append(*events(h, state), endOfState(13, 16)) }, "a state ends"},
	})
}

func TestInformersNotices(t *testing.T) {
	run(t, []broken{
		{"an older version", Informers, func(h *history.History) { h.Informers[0].Events[2].Object.Version = 10 }, "comes after"},
		{"an object that is new again", Informers, func(h *history.History) { h.Informers[0].Events[2].Type = history.Added }, "comes after"},
		{"a deletion of nothing", Informers, func(h *history.History) { h.Informers[0].Events[0].Type = history.Deleted }, "comes after"},
		{"an object that is not as written", Informers, func(h *history.History) { h.Informers[0].Events[0].Object.Mark = "m9" }, "watches show"},
	})
}

// TestGap checks that changes that compaction hides from all watches are not reported, and that everything else is.
func TestGap(t *testing.T) {
	gap := func() *history.History {
		h := sound()
		x14, y12 := in("b", obj("x", 14, "m4")), in("b", obj("y", 12, "m2"))
		h.Lists = append(h.Lists, list(8, 14, x14, y12))
		h.Watches = []*history.Watch{watch(10, h.Watches[0].Events[:1]...), watch(14, h.Watches[1].Events[1:]...), h.Watches[3]}
		return h
	}
	h := gap()
	logs, _ := Rebuild(h)
	if log := logs["things"]; log.tellsAllSince(at(8)) || !log.tellsAllSince(at(9)) || log.Covers(12) || !log.Covers(11) || !log.Covers(15) {
		t.Errorf("the log has the spans %v", log.spans)
	}
	for _, err := range All(h) {
		t.Error(err)
	}
	h = gap()
	h.Lists = append(h.Lists, list(13, 16, in("b", obj("x", 14, "m4"))))
	if errs := All(h); len(errs) == 0 {
		t.Error("a list after the gap that lacks an object passes")
	}
}
