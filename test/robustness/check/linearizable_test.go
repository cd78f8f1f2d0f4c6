package check

import (
	"testing"

	"github.com/sqube/sqube/test/robustness/history"
)

func TestLinearizableNotices(t *testing.T) {
	add := func(operations ...*history.Operation) func(*history.History) {
		return func(h *history.History) { h.Operations = append(h.Operations, operations...) }
	}
	run(t, []broken{
		{"a stale get", Linearizable, add(get(9, 10, obj("x", 13, "m3"))), "x: there is no order"},
		{"a get that misses a created object", Linearizable, add(but(get(5, 6, obj("y", 0, "")), history.Absent)), "absent"},
		{"a get of a deleted object", Linearizable, add(get(11, 12, in("b", obj("y", 12, "m2")))), "get things/y"},
		{"a get older than a change that a watch has shown", Linearizable, add(get(13, 14, in("b", obj("x", 13, "m3")))), "get things/x"},
		{"a get older than the effect of a lost response", Linearizable, add(but(get(14, 15, obj("z", 0, "")), history.Absent)), "get things/z"},
		{"a lost update", Linearizable, func(h *history.History) {
			second := write(history.Update, 6, 7, obj("x", 14, "m8")) // of the version that m3 replaced
			second.IfVersion = 11
			h.Operations[3] = second
		}, "x: there is no order"},
		{"a conflict without a competing write", Linearizable, func(h *history.History) {
			refused := but(write(history.Update, 9, 10, obj("x", 0, "m8")), history.Conflict)
			refused.IfVersion = 14
			h.Operations = append(h.Operations, refused)
		}, "conflict"},
		{"a second creation", Linearizable, add(write(history.Create, 9, 10, obj("x", 20, "m8"))), "create things/x"},
		{"a creation rejected because the object exists, although it does not", Linearizable,
			add(but(write(history.Create, 0, 0, obj("x", 0, "m8")), history.Exists)), "exists"},
		{"an object that disappears by a deletion without a response, which the log does not show", Linearizable,
			add(but(remove(13, 14, obj("x", 0, "")), history.Unknown), but(get(15, 16, obj("x", 0, "")), history.Absent)), "get things/x"},
		{"a change by an update without a response, which the log does not show", Linearizable,
			add(but(write(history.Update, 13, 14, obj("x", 0, "m8")), history.Unknown), but(write(history.Update, 15, 16, obj("x", 0, "m9")), history.Absent)), "absent"},
		{"a deletion twice", Linearizable, add(remove(11, 12, obj("y", 0, ""))), "delete things/y"},
		{"a deletion of another object of the same name", Linearizable, func(h *history.History) { h.Operations[6].Object.UID = "other" }, "delete things/y"},
		{"an update that changes the UID", Linearizable, func(h *history.History) { h.Operations[2].Object.UID = "other" }, "things/x"},
		{"a version that decreases", Linearizable, func(h *history.History) { h.Operations[2].Object.Version = 9 }, "things/x"},
		{"a write that took effect and is then undone", Linearizable, func(h *history.History) {
			h.Operations = append(h.Operations, get(15, 16, obj("z", 16, "m5")), but(get(17, 18, obj("z", 0, "")), history.Absent))
		}, "things/z"},
	})
}

// TestUnknownOutcomes checks histories without watches, in which nothing shows the outcome of requests with lost responses.
func TestUnknownOutcomes(t *testing.T) {
	made := func() *history.Operation { return write(history.Create, 1, 2, obj("x", 11, "m1")) }
	lost := func() *history.Operation {
		return but(write(history.Update, 3, 4, obj("x", 0, "m2")), history.Unknown)
	}
	for _, c := range []struct {
		what       string
		operations []*history.Operation
		sound      bool
	}{
		{"it was never done", []*history.Operation{made(), lost(), get(5, 6, obj("x", 11, "m1"))}, true},
		{"it was done", []*history.Operation{made(), lost(), get(5, 6, obj("x", 12, "m2"))}, true},
		{"it was done long after", []*history.Operation{made(), lost(), get(5, 6, obj("x", 11, "m1")), get(7, 8, obj("x", 12, "m2"))}, true},
		{"it was done before its call", []*history.Operation{made(), lost(), get(2, 2, obj("x", 12, "m2"))}, false},
		{"it was done and undone", []*history.Operation{made(), lost(), get(5, 6, obj("x", 12, "m2")), get(7, 8, obj("x", 11, "m1"))}, false},
		{"a deletion was done", []*history.Operation{made(), but(remove(3, 4, obj("x", 0, "")), history.Unknown),
			but(get(5, 6, obj("x", 0, "")), history.Absent)}, true},
		{"a deletion was done before its call", []*history.Operation{made(), but(remove(5, 6, obj("x", 0, "")), history.Unknown),
			but(get(3, 4, obj("x", 0, "")), history.Absent)}, false},
		{"it was never sent, but done", []*history.Operation{made(), but(write(history.Update, 3, 4, obj("x", 0, "m2")), history.Unsent),
			get(5, 6, obj("x", 12, "m2"))}, false},
	} {
		h := &history.History{Operations: c.operations}
		if errs := Linearizable(h, Logs{}); (len(errs) == 0) != c.sound {
			t.Errorf("%s: %v", c.what, errs)
		}
	}
}
