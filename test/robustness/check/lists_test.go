package check

import (
	"testing"

	"github.com/sqube/sqube/test/robustness/history"
)

func TestListsNotices(t *testing.T) {
	objects := func(h *history.History) *[]history.Object { return &h.Lists[1].Pages[0].Objects }
	run(t, []broken{
		{"an object too few", Lists, func(h *history.History) { *objects(h) = (*objects(h))[:1] }, "is missing"},
		{"an object too many", Lists, func(h *history.History) { *objects(h) = append(*objects(h), obj("z", 16, "m5")) }, "was not there"},
		{"an object of before", Lists, func(h *history.History) { (*objects(h))[0] = obj("x", 11, "m1") }, "and not"},
		{"an object of after", Lists, func(h *history.History) { (*objects(h))[0] = in("b", obj("x", 14, "m4")) }, "and not"},
		{"an object twice", Lists, func(h *history.History) { *objects(h) = append((*objects(h))[:1], *objects(h)...) }, "the names are"},
		{"names out of order", Lists, func(h *history.History) { o := *objects(h); o[0], o[1] = o[1], o[0] }, "the names are"},
		{"pages of two revisions", Lists, func(h *history.History) { h.Lists[2].Pages[1].Version = 14 }, "page 2 is of version 14"},
		{"another revision than the one asked for", Lists, func(h *history.History) { h.Lists[2].Asked = 12 }, "12 was asked for"},
		{"an older revision than asked for", Lists, func(h *history.History) { h.Lists[1].Asked = 14 }, "14 was asked for"},
		{"objects that are not selected", Lists, func(h *history.History) { h.Lists[1].Group = "a" }, "was not there"},
	})
}
