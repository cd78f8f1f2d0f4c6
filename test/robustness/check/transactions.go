package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqube/sqube/test/robustness/history"
)

// The accounts of each resource that has some, between which transactions move amounts: their sum is always the same.
const (
	accounts = 6
	// Deposit is the amount of each account at first.
	Deposit = 100
)

const accountPrefix = "account-"

// AccountNames returns the names of the accounts.
func AccountNames() (names []string) {
	for i := range accounts {
		names = append(names, fmt.Sprint(accountPrefix, i))
	}
	return names
}

// Transactions checks that each transaction has happened as a whole or not at all, and that nobody was shown a part of one: the sum of the
// accounts is right in every list, after the initial events of every watch, and at every bookmark.
func Transactions(h *history.History, logs Logs) (errs []error) {
	errs = whole(h, logs)
	for _, l := range h.Lists {
		if l.Group != "" {
			continue
		}
		if err := balanced(objectsOf(l)); err != nil {
			errs = append(errs, fmt.Errorf("list of %s (version %d, asked for %d, %d pages) by client %d, %s to %s: %w",
				l.Resource, l.Version(), l.Asked, len(l.Pages), l.Client, l.Call, l.Return, err))
		}
	}
	for _, w := range h.Watches {
		if err := balancedStream(w, logs[w.Resource]); err != nil {
			errs = append(errs, fmt.Errorf("watch of %s (from %d) by client %d at server %d, %s: %w", w.Resource, w.From, w.Client, w.Server, w.Call, err))
		}
	}
	return errs
}

// balanced checks the sum of the accounts of a state, which may be older than these.
func balanced(state State) error {
	n, sum := 0, 0
	for name, o := range state {
		if strings.HasPrefix(name, accountPrefix) {
			n++
			sum += o.Amount
		}
	}
	if n != 0 && (n != accounts || sum != accounts*Deposit) {
		return fmt.Errorf("the sum of %d accounts is %d, not %d of %d", n, sum, accounts*Deposit, accounts)
	}
	return nil
}

// balancedStream checks the states that a watch shows at its bookmarks, if the one at its begin is known.
func balancedStream(w *history.Watch, log *Log) error {
	at, events, begun := follows(w)
	if w.Group != "" || !begun {
		return nil
	}
	state := initialState(w)
	if !w.Initial {
		var known bool
		if state, known = log.State(at); !known {
			return nil
		}
	} else if err := balanced(state); err != nil {
		return fmt.Errorf("after its initial events, at %d: %w", at, err)
	}
	for _, e := range events {
		switch e.Type {
		case history.Bookmark:
			if err := balanced(state); err != nil {
				return fmt.Errorf("at the bookmark %d: %w", e.Object.Version, err)
			}
		case history.Deleted:
			delete(state, e.Object.Name)
		default:
			state[e.Object.Name] = e.Object
		}
	}
	return nil
}

// whole checks that the log has all writes of a transaction, one after the other, or none.
func whole(h *history.History, logs Logs) (errs []error) {
	made := map[string]uint64{} // the revisions of writes by mark
	for _, log := range logs {
		for _, c := range log.Changes {
			if c.Type != history.Deleted {
				made[c.Object.Mark] = c.Object.Version
			}
		}
	}
	all := map[string][]*history.Operation{}
	for _, o := range h.Operations {
		if o.Transaction != "" {
			all[o.Transaction] = append(all[o.Transaction], o)
		}
	}
	for name, operations := range all {
		var versions []uint64
		missing := ""
		for _, o := range operations {
			version, ok := made[o.Mark]
			switch {
			case o.Verb == history.Delete:
			case ok:
				versions = append(versions, version)
			default:
				missing = describe(o)
			}
		}
		if len(versions) == 0 {
			continue
		}
		first, last := slices.Min(versions), slices.Max(versions)
		if missing != "" && !slices.ContainsFunc(operations, func(o *history.Operation) bool { return !logs[o.Key.Resource].coversAll(first, last) }) {
			errs = append(errs, fmt.Errorf("transaction %s has happened in part, at %v: no watch has seen the %s", name, versions, missing))
		}
		if last-first >= uint64(len(operations)) {
			errs = append(errs, fmt.Errorf("the writes of transaction %s, of %d operations, are apart: %v", name, len(operations), versions))
		}
	}
	return errs
}

// coversAll reports whether the log has all changes of a transaction with writes at two revisions.
func (l *Log) coversAll(first, last uint64) bool {
	const most = 4 * accounts // rows of a transaction
	return slices.ContainsFunc(l.spans, func(s span) bool { return s.from+most < first && last+most <= s.to })
}
