package trial

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// effect is an object that is not as it would be without the change.
type effect struct {
	*Object
	key    key
	life   *life // in the trial; in its twin if it was changed there alone
	absent bool  // it was changed in the twin alone
	root   bool  // the user changed it
	relations
	state  state
	was    state
	parent *effect
}

// comparison compares a trial with its twin.
type comparison struct {
	trial, twin *outcome
	result      *Result
	effects     []*effect
	byKey       map[key]*effect
	ctx         context.Context
}

// compare returns what happened in a trial and not in its twin.
func compare(ctx context.Context, trial, twin *outcome, answers *Answers) (*Result, error) {
	c := &comparison{trial: trial, twin: twin, result: &Result{}, byKey: map[key]*effect{}, ctx: ctx}
	c.find()
	c.place()
	if err := c.follow(); err != nil {
		return nil, err
	}
	c.findEvents()
	c.placeHeld()
	c.findPending()
	c.findEvicted()
	c.findNotRun()
	answers.into(c.result)
	c.plant()
	c.judge()
	c.result.bound()
	return c.result, nil
}

// after returns when something happened, counted from the change.
func (c *comparison) after(o *outcome, t time.Time) Duration {
	return Duration(max(t.Sub(o.begin), 0))
}

// find finds the effects.
func (c *comparison) find() {
	var ours, theirs []*life // that the other copy does not have
	for k, l := range c.trial.lives {
		if other := c.twin.lives[k]; other != nil {
			c.addBoth(l, other)
		} else if l.existed || !generated(l) {
			c.addOne(l, false)
		} else {
			ours = append(ours, l)
		}
	}
	for k, l := range c.twin.lives {
		if c.trial.lives[k] != nil {
			continue
		}
		if l.existed || !generated(l) {
			c.addOne(l, true)
		} else {
			theirs = append(theirs, l)
		}
	}
	ours, theirs = unmatched(ours, theirs)
	for _, l := range ours {
		c.addOne(l, false)
	}
	for _, l := range theirs {
		c.addOne(l, true)
	}
	slices.SortFunc(c.effects, func(a, b *effect) int {
		if a.absent != b.absent { // revisions of the two copies don't compare
			return int(a.First - b.First)
		}
		return int(a.life.writes[0].revision - b.life.writes[0].revision)
	})
}

var (
	generatedName = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}$`) // by generateName
	volumeName    = regexp.MustCompile(`^pvc-[0-9a-f-]{36}$`)
)

// generated reports whether an object may have another name in another copy.
func generated(l *life) bool {
	switch {
	case l.Resource == "ipaddresses", l.Resource == "volumeattachments":
		return true
	case l.GroupResource == volumes:
		return volumeName.MatchString(l.name)
	}
	return generatedName.MatchString(l.name)
}

// shape is what two objects with generated names have in common that stand for each other.
func (l *life) shape() key {
	name := generatedName.ReplaceAllString(l.name, "")
	if !generatedName.MatchString(l.name) {
		o := decode(l.after)
		name = text(o, "spec", "claimRef", "namespace") + "/" + text(o, "spec", "claimRef", "name") + " " + text(o, "spec", "parentRef", "name")
	}
	return key{l.GroupResource, l.namespace, name}
}

// unmatched returns which of the objects with generated names have no counterpart. If one has one that came to another end, it is among the first.
func unmatched(ours, theirs []*life) (onlyOurs, onlyTheirs []*life) {
	type end struct {
		shape  key
		exists bool
		state  string
	}
	endOf := func(l *life) end {
		e := end{shape: l.shape(), exists: l.exists}
		if l.exists {
			e.state = stateOf(l.GroupResource, decode(l.after)).text
		}
		return e
	}
	ends, shapes := map[end]int{}, map[key]int{}
	for _, l := range theirs {
		ends[endOf(l)]++
	}
	for _, l := range ours {
		if e := endOf(l); ends[e] > 0 {
			ends[e]--
		} else {
			onlyOurs = append(onlyOurs, l)
			shapes[e.shape]++
		}
	}
	for _, l := range theirs {
		e := endOf(l)
		if ends[e] == 0 {
			continue
		}
		if ends[e]--; shapes[e.shape] > 0 {
			shapes[e.shape]--
		} else {
			onlyTheirs = append(onlyTheirs, l)
		}
	}
	return onlyOurs, onlyTheirs
}

// addOne adds an object that was changed in one copy alone.
func (c *comparison) addOne(l *life, absent bool) {
	before, after := l.before, l.after
	if !l.exists {
		after = nil
	}
	if absent { // without the change it became what it is here
		c.add(&effect{life: l, absent: true}, decode(after), decode(before))
		return
	}
	c.add(&effect{life: l}, decode(before), decode(after))
}

// addBoth adds an object that was changed in both copies, unless it came to the same.
func (c *comparison) addBoth(l, twin *life) {
	if !l.exists && !twin.exists && !l.byUser() {
		return
	}
	var without, with map[string]any
	if twin.exists {
		without = decode(twin.after)
	}
	if l.exists {
		with = decode(l.after)
	}
	e := &effect{life: l}
	if without == nil && with == nil { // the user changed what goes anyway
		without = decode(l.before)
	}
	c.add(e, without, with)
}

// add adds an object that the change has made different, if it has: how it would be without it, and how it is.
func (c *comparison) add(e *effect, without, with map[string]any) {
	l := e.life
	e.key = l.key
	e.root = !e.absent && l.byUser()
	e.was, e.state = stateOf(l.GroupResource, without), stateOf(l.GroupResource, with)
	last := with
	if last == nil {
		if last = without; last == nil || e.absent && l.exists {
			last = decode(l.after)
		}
	}
	c.relate(e, last)
	if removed := decode(l.removed); removed != nil && e.key.GroupResource == pods {
		e.node = text(removed, "spec", "nodeName")
	}
	e.Object = &Object{Reference: c.reference(l.key, last), By: l.by(), Writes: len(l.writes)}
	e.UID = l.uid
	of := c.trial
	if e.absent {
		of = c.twin
	}
	e.First, e.Last = c.after(of, l.writes[0].at), c.after(of, l.writes[len(l.writes)-1].at)
	if without != nil && with != nil {
		e.Diff = c.differences(l, without, with)
	}
	e.Operation = operation(e, without, with)
	e.State = e.state.text
	if e.State == "" && e.was.bad && with != nil {
		e.State = "no longer " + e.was.text
	}
	if without != nil && with != nil && len(e.Diff) == 0 && (e.absent || e.state == e.was && e.Operation == Changed) && (!e.root || len(e.By) == 1) {
		return // it is the same, or would only have another status; what the user has written again counts if somebody has taken it back
	}
	c.effects = append(c.effects, e)
	c.byKey[e.key] = e
}

// operation says what has become of an object.
func operation(e *effect, without, with map[string]any) Operation {
	l := e.life
	switch {
	case e.absent && !l.existed:
		return NotCreated
	case e.absent && !l.exists:
		return NotDeleted
	case e.absent:
		return NotChanged
	case !l.existed && !l.exists:
		return Passing
	case with == nil:
		return Deleted
	case without == nil && l.existed:
		return NotDeleted
	case without == nil:
		return Created
	case l.recreated():
		return Replaced
	default:
		return Changed
	}
}

// recreated reports whether the object existed, and another one has its name now.
func (l *life) recreated() bool {
	return l.existed && l.exists && l.removed != nil
}

// differences returns the fields in which two versions of an object differ. It changes them.
func (c *comparison) differences(l *life, without, with map[string]any) []Difference {
	hidden := c.trial.served.Hidden(c.ctx, l.GroupResource)
	both := c.trial.lives[l.key] != nil && c.twin.lives[l.key] != nil
	all := fieldpath.DifferencesOf(normal(l.GroupResource, without), normal(l.GroupResource, with))
	all = slices.DeleteFunc(all, func(d fieldpath.Difference) bool {
		return both && bothTimes(d.Old, d.New)
	})
	return changes.FieldChanges(hidden, all)
}

// reference returns the name of an object, with the kind that it says, or its resource has.
func (c *comparison) reference(k key, object map[string]any) Reference {
	r := Reference{APIVersion: text(object, "apiVersion"), Kind: text(object, "kind"), Resource: k.Resource, Namespace: k.namespace, Name: k.name}
	if r.Kind == "" {
		kind, _ := c.trial.served.KindOf(k.GroupResource)
		if kind.Kind == "" {
			kind, _ = c.twin.served.KindOf(k.GroupResource)
		}
		r.APIVersion, r.Kind = kind.ToAPIVersionAndKind()
	}
	if r.Kind == "" {
		r.APIVersion, r.Kind = schema.GroupVersion{Group: k.Group}.String(), strings.ToLower(k.Resource)
	}
	return r
}
