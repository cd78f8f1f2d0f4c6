// Package check verifies that a recorded history keeps the promises of the API. It does not depend on how the history was
// recorded: each check returns the violations that it finds.
//
// What the server has really done is rebuilt from the watches, which together show every change: see Log. If compaction (410)
// hid a change from all of them, the log has a gap, and whatever depends on it is not checked.
package check

import (
	"fmt"

	"github.com/sqube/sqube/test/robustness/history"
)

// All runs every check and returns what they found.
func All(h *history.History) []error {
	logs, errs := Rebuild(h)
	for _, check := range []func(*history.History, Logs) []error{
		Linearizable, Revisions, Acknowledged, Lists, Watches, Informers, Transactions,
	} {
		errs = append(errs, check(h, logs)...)
	}
	return errs
}

func describe(o *history.Operation) string {
	return fmt.Sprintf("%s %s by client %d at server %d, %s to %s", o.Verb, o.Key, o.Client, o.Server, o.Call, o.Return)
}
