package check

import (
	"testing"

	"github.com/sqube/sqube/test/robustness/history"
)

func TestListsNotices(t *testing.T) {
	objects := func(h *history.History) *[]history.Object { return &h.Lists[1].Pages[0].Objects }
	run(t, []broken{
		{"a missing object", Lists, func(h *history.History) { *objects(h) = (*objects(h))[:1] }, "is missing"},
		{"an extra object", Lists, func(h *history.History) { *objects(h) = append(*objects(h), obj("z", 16, "m5")) }, "did not exist"},
		{"an older object", Lists, func(h *history.History) { (*objects(h))[0] = obj("x", 11, "m1") }, "instead of"},
		{"a newer object", Lists, func(h *history.History) { (*objects(h))[0] = in("b", obj("x", 14, "m4")) }, "instead of"},
		{"an object twice", Lists, func(h *history.History) { *objects(h) = append((*objects(h))[:1], *objects(h)...) }, "the names are"},
		{"names out of order", Lists, func(h *history.History) { o := *objects(h); o[0], o[1] = o[1], o[0] }, "the names are"},
		{"pages of two revisions", Lists, func(h *history.History) { h.Lists[2].Pages[1].Version = 14 }, "page 2 has version 14"},
		{"a revision other than the requested one", Lists, func(h *history.History) { h.Lists[2].Asked = 12 }, "12 was requested"},
		{"a revision older than requested", Lists, func(h *history.History) { h.Lists[1].Asked = 14 }, "14 was requested"},
		{"objects that are not selected", Lists, func(h *history.History) { h.Lists[1].Group = "a" }, "did not exist"},
	})
}
