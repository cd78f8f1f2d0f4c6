package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sqube/sqube/test/robustness/history"
)

// searchTimeout bounds the search for an order of the operations on one object. It takes milliseconds, except where a gap in
// the log leaves many outcomes open; what isn't decided by then passes.
const searchTimeout = 10 * time.Second

// Linearizable checks that the operations on each object are as if each had taken effect at one moment between its call
// and its return, and in no way else. An operation whose outcome is not known may have taken effect at any time after its
// call, or never; where the log tells which, that is what must fit.
func Linearizable(h *history.History, logs Logs) (errs []error) {
	operations := map[history.Key][]porcupine.Operation{}
	evidence := gather(h, logs)
	for _, o := range h.Operations {
		if s, counts := evidence.settle(o); counts {
			operations[o.Key] = append(operations[o.Key], porcupine.Operation{
				ClientId: o.Client, Input: s, Output: s, Call: int64(o.Call), Return: int64(s.until),
			})
		}
	}
	for _, key := range sortedKeys(operations) {
		if porcupine.CheckOperationsTimeout(register, operations[key], searchTimeout) == porcupine.Illegal {
			errs = append(errs, fmt.Errorf("%s: there is no order of its %d operations in which each could have been answered as it was%s",
				key, len(operations[key]), firstUnordered(operations[key])))
		}
	}
	return errs
}

// firstUnordered says which operation is the first that fits in no order.
func firstUnordered(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	i := sort.Search(len(operations), func(i int) bool {
		part := slices.Clone(operations[:i+1])
		for _, o := range operations[i+1:] {
			// Writes that were under way then may have had their effect.
			if s := *o.Input.(*settled); s.outcome == history.Done && s.Writes() && o.Call <= operations[i].Return {
				s.maybe = true
				o.Input, o.Return = &s, math.MaxInt64
				part = append(part, o)
			}
		}
		return porcupine.CheckOperationsTimeout(register, part, searchTimeout) == porcupine.Illegal
	})
	if i == len(operations) {
		return ""
	}
	s := operations[i].Input.(*settled)
	return fmt.Sprintf("; the first that fits in none: %s: %s, %+v", describe(s.Operation), s.outcome, s.object)
}

func sortedKeys[V any](m map[history.Key]V) []history.Key {
	keys := make([]history.Key, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b history.Key) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	return keys
}
