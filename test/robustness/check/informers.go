package check

import (
	"fmt"

	"github.com/sqube/sqube/test/robustness/history"
)

// Informers checks that each informer tells its handler of the versions of each object in order, each of them as the watches show
// it. It may leave out versions, which it does when it lists again. That it has reached the final state is checked by Workload.Finish.
func Informers(h *history.History, logs Logs) (errs []error) {
	for _, i := range h.Informers {
		known := State{}
		for _, e := range i.Events {
			if err := follow(known, e, logs[i.Resource]); err != nil {
				errs = append(errs, fmt.Errorf("informer of %s at server %d: %w", i.Resource, i.Server, err))
			}
		}
	}
	return errs
}

// follow checks an event against the objects that the handler knows, and adds it to them.
func follow(known State, e history.Event, log *Log) error {
	before, exists := known[e.Object.Name]
	if e.Type == history.Deleted {
		delete(known, e.Object.Name)
	} else {
		known[e.Object.Name] = e.Object
	}
	switch {
	case exists == (e.Type == history.Added), e.Object.Version < before.Version:
		return fmt.Errorf("%s comes after %+v", event(e), before)
	case e.Type != history.Deleted && log.Covers(e.Object.Version) && log.seen[e.Object.Version].Object != e.Object:
		return fmt.Errorf("%+v comes, and watches show %+v", e.Object, log.seen[e.Object.Version].Object)
	}
	return nil
}
