package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/robustness/history"
)

// moved is a sound history of two transactions, whose records have the revisions 11 and 48:
//
//	12 to 17   the accounts are opened
//	49 and 50  10 is moved from account-0 to account-1
func moved() *history.History {
	h := &history.History{}
	accounts := map[string]history.Object{}
	var events []history.Event
	write := func(transaction string, verb history.Verb, name string, version uint64, amount int) {
		o := obj(name, version, fmt.Sprint("m", version))
		o.Amount = amount
		w := write(verb, int(version), int(version)+1, o)
		w.Transaction = transaction
		kind := history.Added
		if verb == history.Update {
			kind = history.Modified
		}
		accounts[name] = o
		h.Operations, events = append(h.Operations, w), append(events, ev(int(version), kind, o))
	}
	state := func() (all []history.Object) {
		for _, name := range AccountNames() {
			all = append(all, accounts[name])
		}
		return all
	}
	for i, name := range AccountNames() {
		write("open", history.Create, name, uint64(12+i), Deposit)
	}
	opened := state()
	events = append(events, mark(17, 17))
	write("move", history.Update, "account-0", 49, Deposit-10)
	write("move", history.Update, "account-1", 50, Deposit+10)
	events = append(events, mark(50, 100))
	h.Lists = []*history.List{list(9, 10), list(17, 17, opened...), list(50, 50, state()...)}
	h.Watches = []*history.Watch{{Resource: "things", From: 10, Events: events}}
	return h
}

func TestTransactions(t *testing.T) {
	for _, err := range All(moved()) {
		t.Error(err)
	}
	amount := func(o *history.Object) { o.Amount = Deposit - 10 }
	for _, c := range []broken{
		{"a list shows a part", nil, func(h *history.History) { amount(&h.Lists[1].Pages[0].Objects[0]) }, "the sum of 6 accounts is 590, not 600 of 6"},
		{"a list lacks an account", nil, func(h *history.History) { h.Lists[1].Pages[0].Objects = h.Lists[1].Pages[0].Objects[1:] }, "the sum of 5 accounts"},
		{"a bookmark comes between two writes", nil, func(h *history.History) {
			events := h.Watches[0].Events
			h.Watches[0].Events = append(append(append([]history.Event{}, events[:8]...), mark(49, 49)), events[8:]...)
		}, "at the bookmark 49: the sum of 6 accounts is 590"},
		{"a part has not happened", nil, func(h *history.History) {
			events := h.Watches[0].Events
			h.Watches[0].Events = append(append([]history.Event{}, events[:8]...), events[9:]...)
		}, "transaction move has happened in part"},
		{"others come between", nil, func(h *history.History) { h.Watches[0].Events[8].Object.Version = 70 }, "are apart: [49 70]"},
	} {
		h := moved()
		c.how(h)
		logs, _ := Rebuild(h)
		if text := fmt.Sprint(Transactions(h, logs)); !strings.Contains(text, c.says) {
			t.Errorf("%s: the check reports %s, which lacks %q", c.what, text, c.says)
		}
	}
}
