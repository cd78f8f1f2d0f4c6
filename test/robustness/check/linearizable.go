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

// searchTimeout limits the search for an order of the operations on one object. It takes milliseconds, unless a gap in the log
// leaves many outcomes open; whatever isn't decided by then passes.
const searchTimeout = 10 * time.Second

// Linearizable checks that the operations on each object look as if each had taken effect at one moment between its call and
// its return. An operation with an unknown outcome may have taken effect at any time after its call, or never; if the log shows
// which, only that is accepted.
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
			errs = append(errs, fmt.Errorf("%s: there is no order of its %d operations that explains all responses%s",
				key, len(operations[key]), firstUnordered(operations[key])))
		}
	}
	return errs
}

// firstUnordered describes the first operation that fits into no order.
func firstUnordered(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	i := sort.Search(len(operations), func(i int) bool {
		part := slices.Clone(operations[:i+1])
		for _, o := range operations[i+1:] {
			// Writes in flight at that time may have taken effect.
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
	return fmt.Sprintf("; the first that fits into none: %s: %s, %+v", describe(s.Operation), s.outcome, s.object)
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
