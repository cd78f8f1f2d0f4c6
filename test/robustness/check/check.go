// Package check holds a recorded history to what the API promises. It knows nothing of how the history came about: each
// check says what is wrong with it, or nothing.
//
// What the server has really done is rebuilt from the watches, which together show every change: see Log. Where all of
// them were told that what they had missed is forgotten (410), the log has a gap, and what would need it is not checked.
package check

import (
	"fmt"

	"github.com/sqube/sqube/test/robustness/history"
)

// All runs every check and returns what they found.
func All(h *history.History) []error {
	logs, errs := Rebuild(h)
	for _, check := range []func(*history.History, Logs) []error{
		Linearizable, Revisions, Acknowledged, Lists, Watches,
	} {
		errs = append(errs, check(h, logs)...)
	}
	return errs
}

func describe(o *history.Operation) string {
	return fmt.Sprintf("%s %s by client %d at server %d, %s to %s", o.Verb, o.Key, o.Client, o.Server, o.Call, o.Return)
}
