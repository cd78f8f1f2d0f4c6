package sqlstore

import (
	"slices"
	"strings"

	"github.com/sqube/sqube/dialect"
)

// interest is in the changes of a collection's objects whose keys begin with
// prefix, or of the one with that key where it does not end in "/" and is not empty.
// Changes of which neither version passes the terms may be left out.
type interest struct {
	resource Resource
	prefix   string
	terms    []Term
}

// single says whether it is in one object.
func (i *interest) single() bool {
	return i.prefix != "" && !strings.HasSuffix(i.prefix, "/")
}

// match says whether it is in the object with that key.
func (i *interest) match(key string) bool {
	if i.single() {
		return key == i.prefix
	}
	return strings.HasPrefix(key, i.prefix)
}

// concerns says whether it is in a change of the object with that key: of the
// versions that the change made and replaced, nil where there is none.
func (i *interest) concerns(key string, made, replaced *Record) bool {
	return i.match(key) && (made != nil && passesAll(i.terms, made) || replaced != nil && passesAll(i.terms, replaced))
}

// topic is the subscriptions of one resource, arranged so that a change
// finds those that can care for it without a look at the others: a thousand
// kubelets each watch the pods of their node, and a change of a pod concerns
// one of them.
//
// A subscription stands in one place: with the one key that it watches, or with
// one label or field that it requires, or else with the prefix of its keys.
type topic struct {
	all        map[*Subscription]struct{}
	byKey      subscribers
	byPrefix   subscribers
	byRequired map[attr]subscribers // by the value, as JSON
}

// subscribers are subscriptions by what they listen to.
type subscribers map[string]map[*Subscription]struct{}

func (l subscribers) add(key string, sub *Subscription) {
	if l[key] == nil {
		l[key] = map[*Subscription]struct{}{}
	}
	l[key][sub] = struct{}{}
}

func (l subscribers) remove(key string, sub *Subscription) {
	if delete(l[key], sub); len(l[key]) == 0 {
		delete(l, key)
	}
}

func newTopic() *topic {
	return &topic{
		all: map[*Subscription]struct{}{}, byKey: subscribers{}, byPrefix: subscribers{},
		byRequired: map[attr]subscribers{},
	}
}

// requires returns a label or field of which the subscription requires one of
// some values, or nil where it requires none. Fields come first: those that
// objects are selected by, such as a pod's node, have many values.
func (sub *Subscription) requires() (found *Term) {
	for i := range sub.terms {
		t := &sub.terms[i]
		if _, ok := t.required(); ok && (found == nil || found.column == labelColumn && t.column == fieldColumn) {
			found = t
		}
	}
	return found
}

func (a *topic) add(sub *Subscription) {
	a.all[sub] = struct{}{}
	a.place(sub, subscribers.add)
}

func (a *topic) remove(sub *Subscription) {
	delete(a.all, sub)
	a.place(sub, subscribers.remove)
}

// place adds a subscription to where it stands, or removes it from there.
func (a *topic) place(sub *Subscription, do func(subscribers, string, *Subscription)) {
	if sub.single() {
		do(a.byKey, sub.prefix, sub)
		return
	}
	term := sub.requires()
	if term == nil {
		do(a.byPrefix, sub.prefix, sub)
		return
	}
	if a.byRequired[term.attr] == nil {
		a.byRequired[term.attr] = subscribers{}
	}
	for _, value := range term.values {
		do(a.byRequired[term.attr], value, sub)
	}
	if len(a.byRequired[term.attr]) == 0 {
		delete(a.byRequired, term.attr)
	}
}

// of appends the subscriptions that c may concern to found, each once.
func (a *topic) receivers(c *Change, found []*Subscription) []*Subscription {
	key, made := c.Record.Key, &c.Record
	if c.Operation == dialect.Delete {
		made = nil
	}
	collect := func(subs map[*Subscription]struct{}) {
		for sub := range subs {
			if sub.offered < c.Record.Revision && sub.concerns(key, made, c.Previous) {
				sub.offered = c.Record.Revision
				found = append(found, sub)
			}
		}
	}
	collect(a.byKey[key])
	collect(a.byPrefix[""])
	for i := range len(key) {
		if key[i] == '/' {
			collect(a.byPrefix[key[:i+1]])
		}
	}
	for attr, subs := range a.byRequired {
		for _, value := range c.values(attr) {
			if value != unknownValue {
				collect(subs[value])
				continue
			}
			for _, subs := range subs {
				collect(subs)
			}
		}
	}
	return found
}

// values returns the values that an attribute has in the versions that c made
// and replaced, those that they do not tell included.
func (c *Change) values(a attr) []string {
	values := make([]string, 0, 2)
	if c.Operation != dialect.Delete {
		if value, has := a.of(&c.Record); has {
			values = append(values, value)
		}
	}
	if c.Previous != nil {
		if value, has := a.of(c.Previous); has && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}
