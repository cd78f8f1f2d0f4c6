package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sqube/sqube/test/robustness/history"
)

// Lists checks that each list is a snapshot: all its pages have the same revision, which is the requested one, or the end of the transaction
// in which that is, and together they hold exactly the selected objects at that revision, each once and sorted by name.
func Lists(h *history.History, logs Logs) (errs []error) {
	whole := wholes(h)
	for _, l := range h.Lists {
		if err := snapshot(l, whole(l.Asked), logs[l.Resource]); err != nil {
			errs = append(errs, fmt.Errorf("list of %s (group %q, version %d, %d pages) by client %d, %s to %s: %w",
				l.Resource, l.Group, l.Version(), len(l.Pages), l.Client, l.Call, l.Return, err))
		}
	}
	return errs
}

// wholes returns a function that returns the last revision of the transaction that has a revision, or that if there is none.
func wholes(h *history.History) func(uint64) uint64 {
	names, ends := map[uint64]string{}, map[string]uint64{}
	for _, o := range h.Operations {
		if version := o.Object.Version; o.Transaction != "" && version != 0 {
			names[version], ends[o.Transaction] = o.Transaction, max(ends[o.Transaction], version)
		}
	}
	return func(version uint64) uint64 { return max(version, ends[names[version]]) }
}

// snapshot checks a list for which that revision stands for the requested one.
func snapshot(l *history.List, asked uint64, log *Log) error {
	var names []string
	for i, page := range l.Pages {
		if page.Version != l.Version() {
			return fmt.Errorf("page %d has version %d", i+1, page.Version)
		}
		for _, o := range page.Objects {
			names = append(names, o.Name)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) < len(names) {
		return fmt.Errorf("the names are %q", names)
	}
	if l.Version() < l.Asked || l.Exact && l.Version() != asked {
		return fmt.Errorf("version %d was requested, which stands for %d", l.Asked, asked)
	}
	state, known := log.State(l.Version())
	if !known {
		return nil
	}
	return same(objectsOf(l), selected(state, l.Group))
}

// selected returns the objects of a group, or all.
func selected(state State, group string) State {
	state = maps.Clone(state)
	maps.DeleteFunc(state, func(_ string, o history.Object) bool { return group != "" && o.Group != group })
	return state
}

// same returns how a state differs from the expected one.
func same(got, want State) error {
	for name, o := range want {
		if found, ok := got[name]; !ok {
			return fmt.Errorf("%+v is missing", o)
		} else if found != o {
			return fmt.Errorf("has %+v instead of %+v", found, o)
		}
	}
	for name, o := range got {
		if _, ok := want[name]; !ok {
			return fmt.Errorf("has %+v, which did not exist", o)
		}
	}
	return nil
}
