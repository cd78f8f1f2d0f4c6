package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/test/robustness/history"
)

// at turns small numbers into times.
func at(n int) time.Duration { return time.Duration(n) * time.Second }

func obj(name string, version uint64, mark string) history.Object {
	return history.Object{Name: name, UID: "uid-" + name, Version: version, Mark: mark, Group: "a"}
}

func in(group string, o history.Object) history.Object {
	o.Group = group
	return o
}

func key(name string) history.Key { return history.Key{Resource: "things", Name: name} }

// write is an acknowledged create, update or apply.
func write(verb history.Verb, call, ret int, o history.Object) *history.Operation {
	return &history.Operation{
		Verb: verb, Call: at(call), Return: at(ret), Key: key(o.Name), Mark: o.Mark, Group: o.Group, Outcome: history.Done, Object: o,
	}
}

// remove is an acknowledged delete.
func remove(call, ret int, o history.Object) *history.Operation {
	return &history.Operation{
		Verb: history.Delete, Call: at(call), Return: at(ret), Key: key(o.Name), Outcome: history.Done, Object: history.Object{UID: o.UID},
	}
}

func get(call, ret int, o history.Object) *history.Operation {
	return &history.Operation{Verb: history.Get, Call: at(call), Return: at(ret), Key: key(o.Name), Outcome: history.Done, Object: o}
}

// but returns the operation with another outcome, and no resulting object.
func but(o *history.Operation, outcome history.Outcome) *history.Operation {
	o.Outcome, o.Object = outcome, history.Object{}
	return o
}

func ev(n int, kind history.EventType, o history.Object) history.Event {
	return history.Event{At: at(n), Type: kind, Object: o}
}

func mark(n int, version uint64) history.Event {
	return ev(n, history.Bookmark, history.Object{Version: version})
}

func endOfState(n int, version uint64) history.Event {
	e := mark(n, version)
	e.EndsInitial = true
	return e
}

func list(n int, version uint64, objects ...history.Object) *history.List {
	return &history.List{Resource: "things", Call: at(n), Return: at(n + 1), Pages: []history.Page{{Version: version, Objects: objects}}}
}

func watch(from uint64, events ...history.Event) *history.Watch {
	return &history.Watch{Resource: "things", From: from, Events: events}
}

// sound is a correct history:
//
//	10       nothing
//	11  1 s  x is created in group a
//	12  3 s  y is created in group b
//	13  5 s  x is updated
//	14  7 s  x is moved to group b
//	15  9 s  y is deleted
//	16 11 s  z is created by a request whose response is lost
func sound() *history.History {
	x11, y12, x13, x14 := obj("x", 11, "m1"), in("b", obj("y", 12, "m2")), obj("x", 13, "m3"), in("b", obj("x", 14, "m4"))
	y15, z16 := y12, obj("z", 16, "m5")
	y15.Version = 15
	moved := write(history.Apply, 7, 8, x14)
	lost := but(write(history.Create, 11, 12, z16), history.Unknown)
	all := []history.Event{
		ev(2, history.Added, x11), ev(4, history.Added, y12), ev(6, history.Modified, x13), ev(8, history.Modified, x14),
		ev(10, history.Deleted, y15), ev(12, history.Added, z16),
	}
	groupA := watch(10, ev(2, history.Added, x11), ev(6, history.Modified, x13), mark(6, 13), ev(8, history.Deleted, x14), ev(12, history.Added, z16), mark(13, 16))
	groupA.Group = "a"
	state := watch(0, ev(9, history.Added, x14), ev(9, history.Added, y12), endOfState(9, 14), ev(10, history.Deleted, y15), ev(12, history.Added, z16))
	state.Initial, state.Call = true, at(8)
	paged := &history.List{Resource: "things", Call: at(8), Return: at(10), Asked: 13, Exact: true,
		Pages: []history.Page{{Version: 13, Objects: []history.Object{x13}}, {Version: 13, Objects: []history.Object{y12}}}}
	return &history.History{
		Operations: []*history.Operation{
			write(history.Create, 1, 2, x11), write(history.Create, 3, 4, y12), write(history.Update, 5, 6, x13), moved,
			get(7, 8, x13), get(8, 9, x14), remove(9, 10, y12), lost, get(13, 14, z16),
			but(get(1, 2, y12), history.Absent),
			but(write(history.Create, 5, 6, obj("x", 0, "m6")), history.Exists),
			but(write(history.Update, 13, 14, obj("x", 0, "m7")), history.Unknown),
		},
		Lists:   []*history.List{list(0, 10), list(6, 13, x13, y12), paged},
		Watches: []*history.Watch{watch(10, all[:3]...), watch(13, all[3:]...), watch(11, append([]history.Event{mark(3, 11)}, all[1:]...)...), groupA, state},
		// The informer lists again after 12.
		Informers: []*history.Informer{{Resource: "things", Events: []history.Event{all[0], all[1], all[3], all[4], all[5]}}},
	}
}

func TestSoundHistoryPasses(t *testing.T) {
	for _, err := range All(sound()) {
		t.Error(err)
	}
}

// broken is a way to break the sound history, and the check that must fail.
type broken struct {
	what  string
	check func(*history.History, Logs) []error
	how   func(h *history.History)
	says  string // part of the message
}

// run fails if a broken history passes.
func run(t *testing.T, cases []broken) {
	t.Helper()
	for _, c := range cases {
		h := sound()
		c.how(h)
		logs, errs := Rebuild(h)
		errs = append(errs, c.check(h, logs)...)
		if text := fmt.Sprint(errs); len(errs) == 0 || !strings.Contains(text, c.says) {
			t.Errorf("%s: the check reports %s, which lacks %q", c.what, text, c.says)
		}
	}
}
