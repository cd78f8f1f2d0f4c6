package trial

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// mostMoments is how many lines an object has in the time line, mostTimeline how many objects are in it, and mostWrites how many of its
	// versions are read.
	mostMoments, mostTimeline, mostWrites = 6, 20, 2000
	// contested is how often a field goes back to a value that it had for a fight.
	contested = 3
	// withoutEnd is how often an object has been written in the second half of the time if nobody expects it to come to rest.
	withoutEnd = 10
	// mostFollowed is of how many objects that are written often all versions are read.
	mostFollowed = 50
)

// follow reads the versions of objects, for the time line and for fights.
func (c *comparison) follow() error {
	lines, followed := 0, 0
	for _, e := range c.effects {
		if e.absent {
			continue
		}
		describe := moments(e)
		fights := !e.root && len(e.life.writes) > 2*contested || e.root && len(e.life.writes) > contested
		if describe != nil {
			if lines++; lines > mostTimeline {
				describe = nil
			}
		}
		if fights {
			if followed++; followed > mostFollowed {
				fights = false
			}
		}
		if describe == nil && !fights {
			continue
		}
		var all []Moment
		contest := newContest(e)
		err := c.trial.versions(e.life, func(w *write, object map[string]any) {
			said := ""
			if describe != nil {
				said = describe(object)
			}
			if fights {
				contest.add(w, object) // changes it
			}
			if said == "" || len(all) > 0 && all[len(all)-1].Text == said {
				return
			}
			at := c.after(c.trial, w.at)
			if len(all) > 0 && all[len(all)-1].At/Duration(time.Second) == at/Duration(time.Second) {
				all = all[:len(all)-1] // of one second, the last
			}
			all = append(all, Moment{At: at, Object: e.Reference, Text: said})
		})
		if err != nil {
			return err
		}
		c.result.Timeline = append(c.result.Timeline, condense(all)...)
		if f := contest.fight(c.restless(e)); f != nil {
			c.result.Fights = append(c.result.Fights, *f)
		}
	}
	slices.SortStableFunc(c.result.Timeline, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
	return nil
}

// restless reports whether an object is written without end, and would not be without the change. The status of a CronJob follows its schedule.
func (c *comparison) restless(e *effect) bool {
	if e.key.GroupResource == cronJobs {
		return false
	}
	writes, late := e.life.writes, c.trial.end.Add(-c.trial.end.Sub(c.trial.begin)/2)
	n := 0
	for i := range writes {
		if writes[i].at.After(late) && writes[i].by != "kubelet" {
			n++
		}
	}
	if twin := c.twin.lives[e.key]; twin != nil && len(twin.writes) > len(writes)/2 {
		return false
	}
	return n >= withoutEnd
}

// moments returns how the versions of an object are described in the time line; nil for one that is not in it.
func moments(e *effect) func(map[string]any) string {
	resource := e.key.GroupResource
	progress := func(o map[string]any) string {
		if o == nil {
			return "deleted"
		}
		return stateOf(resource, o).text
	}
	switch resource {
	case jobs:
		if len(e.owners) > 0 { // by a CronJob
			return nil
		}
		return progress
	case deployments, statefulSets, daemonSets, namespaces:
		return progress
	case nodes:
		return func(o map[string]any) string { return cmp.Or(progress(o), "ready") }
	case claims:
		if e.root {
			return func(o map[string]any) string { return cmp.Or(progress(o), "Bound") }
		}
	case pods:
		if e.root && len(e.owners) == 0 {
			return func(o map[string]any) string { return cmp.Or(progress(o), "ready") }
		}
	case autoscalers:
		return func(o map[string]any) string {
			if o == nil {
				return "deleted"
			}
			return fmt.Sprintf("wants %d", number(o, "status", "desiredReplicas"))
		}
	}
	return nil
}

// condense returns some of an object's moments: the first, the last, and those between them at equal distances.
func condense(all []Moment) []Moment {
	if len(all) <= mostMoments {
		return all
	}
	some := make([]Moment, 0, mostMoments)
	for i := range mostMoments {
		some = append(some, all[i*(len(all)-1)/(mostMoments-1)])
	}
	return some
}
