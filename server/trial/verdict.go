package trial

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reason is why a verdict is not AtRest. Those of less weight come first.
type reason struct {
	weight int
	text   string
}

// judge sets the verdict, and its reasons.
func (c *comparison) judge() {
	r := c.result
	var all []reason
	for _, said := range r.Reasons { // by who made the change
		all = append(all, reason{2, said})
	}
	r.Reasons = nil
	r.Held = slices.DeleteFunc(r.Held, func(h Hold) bool { return h.Kind == "budget" && !c.stillHeld(h) })
	for _, refused := range r.Refused {
		all = append(all, reason{0, "The change was refused: " + refused.Message})
	}
	for _, h := range r.Held {
		if c.stillHeld(h) {
			what := h.Object.title()
			if h.Kind == "budget" {
				what = "The eviction of " + what
			}
			all = append(all, reason{1, fmt.Sprintf("%s was stopped by %s: %s", what, h.stopper(), h.why())})
		}
	}
	for _, p := range r.Pending {
		which := p.Pod.title() + " is"
		if p.Alike > 0 {
			which = fmt.Sprintf("%d Pods such as %s are", p.Alike+1, p.Pod.Name)
		}
		all = append(all, reason{3, which + " pending: " + p.Reason})
	}
	all = append(all, c.failing()...)
	for _, e := range c.effects {
		if text := c.fault(e); text != "" {
			all = append(all, reason{5, text})
		}
	}
	for _, f := range r.Fights {
		all = append(all, reason{6, fmt.Sprintf("%s is not left alone: %s by %s, %d times.", f.Object.title(), f.Path, strings.Join(f.By, " and "), f.Times)})
	}
	slices.SortStableFunc(all, func(a, b reason) int { return cmp.Compare(a.weight, b.weight) })
	for _, one := range all {
		r.Reasons = appendNew(r.Reasons, one.text)
	}
	switch {
	case len(r.Refused) > 0:
		r.Verdict = RefusedChange
	case len(r.Reasons) > 0:
		r.Verdict = NotAtRest
	default:
		r.Verdict = AtRest
	}
}

// stopper names what stopped something.
func (h *Hold) stopper() string {
	switch {
	case h.Kind == "other":
		return "the API"
	case h.By == "":
		return cmp.Or(map[string]string{"access": "missing rights", "budget": "a disruption budget", "limit": "a LimitRange"}[h.Kind], h.Kind)
	}
	return h.Kind + " " + h.By
}

var wordy = regexp.MustCompile(`^(?:Error creating(?: \w+)?: )?(?:\S+ "[^"]*" is forbidden: )?(?:ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: )?`)

// why is the message without what the other fields say.
func (h *Hold) why() string { return h.Message[len(wordy.FindString(h.Message)):] }

// title is how a sentence names the object.
func (r *Reference) title() string {
	if r.Namespace != "" {
		return r.Kind + " " + r.Namespace + "/" + r.Name
	}
	return r.Kind + " " + r.Name
}

// stillHeld reports whether what was stopped has not come to its end by another way.
func (c *comparison) stillHeld(h Hold) bool {
	version, _ := schema.ParseGroupVersion(h.Object.APIVersion)
	resource := schema.GroupResource{Group: version.Group, Resource: h.Object.Resource}
	l := c.trial.lives[key{resource, h.Object.Namespace, h.Object.Name}]
	if l == nil || states[resource] == nil || resource == cronJobs || h.Kind == "budget" && l.exists {
		return true
	}
	return l.exists && stateOf(resource, decode(l.after)).bad
}

// broken reports whether an effect has an object wait or fail that did not, or not so.
func (e *effect) broken() bool {
	return !e.absent && e.life.exists && e.state.bad && e.state != e.was
}

// failing returns the Pods that fail, those of one owner together.
func (c *comparison) failing() (all []reason) {
	type group struct {
		first *effect
		n     int
	}
	groups := map[string]*group{}
	var order []*group
	for _, e := range c.effects {
		if e.key.GroupResource != pods || !e.broken() || e.state.text == "Pending" {
			continue
		}
		alike := e.key.namespace + " " + e.state.text
		if len(e.owners) > 0 {
			alike += " " + string(e.owners[0].uid)
		}
		if groups[alike] == nil {
			groups[alike] = &group{first: e}
			order = append(order, groups[alike])
		}
		groups[alike].n++
	}
	for _, g := range order {
		which := g.first.title() + ": "
		if g.n > 1 {
			which = fmt.Sprintf("%d Pods such as %s: ", g.n, g.first.Name)
		}
		all = append(all, reason{4, which + g.first.state.text + "."})
	}
	return all
}

// fault says what is wrong with an object, unless it is with what it belongs to, or with its Pods; "" for nothing.
func (c *comparison) fault(e *effect) string {
	if !e.broken() || e.key.GroupResource == pods {
		return ""
	}
	switch e.key.GroupResource {
	case replicaSets:
		if e.parent != nil && e.parent.key.GroupResource == deployments {
			return ""
		}
	case jobs: // a job of a CronJob can run at the end as at any time
		if len(e.owners) > 0 && !strings.HasPrefix(e.state.text, "failed") {
			return ""
		}
	case claims:
		if c.waitsForConsumer(e) {
			return ""
		}
	}
	for above := e.parent; above != nil; above = above.parent {
		if above.key.GroupResource == namespaces && above.broken() {
			return "" // its message names what is left
		}
	}
	return fmt.Sprintf("%s: %s.", e.title(), e.state.text)
}

// waitsForConsumer reports whether a claim is only bound when a Pod needs it, and none does.
func (c *comparison) waitsForConsumer(e *effect) bool {
	return slices.ContainsFunc(c.result.Events, func(event Event) bool {
		return event.Reason == "WaitForFirstConsumer" && event.Object.Name == e.Name && event.Object.Namespace == e.Namespace
	})
}

// Bounds of what a result lists.
const (
	mostListed = 100
	mostDiffs  = 30
	mostText   = 1024
)

// bound leaves out what is too much, and counts it.
func (r *Result) bound() {
	r.Omitted = map[string]int{}
	cut(r.Omitted, "tree", &r.Tree)
	cut(r.Omitted, "elsewhere", &r.Elsewhere)
	cut(r.Omitted, "timeline", &r.Timeline)
	cut(r.Omitted, "pending", &r.Pending)
	cut(r.Omitted, "held", &r.Held)
	cut(r.Omitted, "evicted", &r.Evicted)
	cut(r.Omitted, "fights", &r.Fights)
	cut(r.Omitted, "events", &r.Events)
	cut(r.Omitted, "refused", &r.Refused)
	cut(r.Omitted, "reasons", &r.Reasons)
	cut(r.Omitted, "warnings", &r.Warnings)
	for _, list := range [][]*Object{r.Tree, r.Elsewhere} {
		boundObjects(list)
	}
	for i := range r.Events {
		r.Events[i].Message = shorten(r.Events[i].Message)
	}
	for i := range r.Held {
		r.Held[i].Message = shorten(r.Held[i].Message)
	}
	for i := range r.Refused {
		r.Refused[i].Message = shorten(r.Refused[i].Message)
	}
	for i := range r.Pending {
		r.Pending[i].Reason = shorten(r.Pending[i].Reason)
	}
	for i := range r.Reasons {
		r.Reasons[i] = shorten(r.Reasons[i])
	}
	if len(r.Omitted) == 0 {
		r.Omitted = nil
	}
}

func boundObjects(list []*Object) {
	for _, o := range list {
		omitted := map[string]int{}
		cut(omitted, "caused", &o.Caused)
		if len(o.Diff) > mostDiffs {
			omitted["diff"] = len(o.Diff) - mostDiffs
			o.Diff = o.Diff[:mostDiffs]
		}
		if len(omitted) > 0 {
			o.Omitted = omitted
		}
		o.State = shorten(o.State)
		boundObjects(o.Caused)
	}
}

func cut[T any](omitted map[string]int, name string, list *[]T) {
	if more := len(*list) - mostListed; more > 0 {
		omitted[name] = more
		*list = (*list)[:mostListed]
	}
}

func shorten(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}
