package check

import (
	"testing"

	"github.com/sqube/sqube/test/robustness/history"
)

func TestRevisionsNotices(t *testing.T) {
	other := func(call, ret int, version uint64) *history.Operation {
		o := write(history.Create, call, ret, obj("w", version, "m8"))
		o.Key.Resource = "others"
		return o
	}
	add := func(o *history.Operation) func(*history.History) {
		return func(h *history.History) { h.Operations = append(h.Operations, o) }
	}
	run(t, []broken{
		{"a version handed out twice", Revisions, add(other(3, 4, 12)), "12 was handed out twice"},
		{"a write below an acknowledged one", Revisions, add(other(9, 10, 13)), "returned resourceVersion 13, although 14 was already known"},
		{"a write that gets a version that a list has shown", Revisions, func(h *history.History) {
			h.Lists = append(h.Lists, list(20, 30))
			h.Operations = append(h.Operations, other(22, 23, 30))
		}, "30"},
		{"a list older than an acknowledged write", Revisions, func(h *history.History) {
			h.Lists = append(h.Lists, list(9, 13))
		}, "list of things"},
		{"a list older than an event of a watch", Revisions, func(h *history.History) { h.Lists = append(h.Lists, list(13, 15)) }, "list of things"},
		{"an initial state older than an acknowledged write", Revisions, func(h *history.History) { h.Watches[4].Call = at(11) }, "with initial state"},
	})
}
