package sqlstore

import (
	"slices"
	"strings"

	"github.com/sqube/sqube/dialect"
)

// interest selects changes: those of the objects of a resource whose keys begin with prefix, or of the one object with that key
// if prefix is not empty and does not end in "/". A change may be left out if neither of its versions passes the terms.
type interest struct {
	resource Resource
	prefix   string
	terms    []Term
}

// single reports whether it selects a single object.
func (i *interest) single() bool {
	return i.prefix != "" && !strings.HasSuffix(i.prefix, "/")
}

// match reports whether it selects the object with that key.
func (i *interest) match(key string) bool {
	if i.single() {
		return key == i.prefix
	}
	return strings.HasPrefix(key, i.prefix)
}

// concerns reports whether it selects a change of the object with that key. made and replaced are the versions that the change
// made and replaced; nil means none.
func (i *interest) concerns(key string, made, replaced *Record) bool {
	return i.match(key) && (made != nil && passesAll(i.terms, made) || replaced != nil && passesAll(i.terms, replaced))
}

// topic has the subscriptions to one resource, arranged so that a change finds those it may concern without looking at the
// others: if a thousand kubelets each watch the pods of their node, a change of a pod concerns only one of them.
//
// A subscription is in one place: under the single key that it watches, under a label or field that it requires, or else under
// the prefix of its keys.
type topic struct {
	all        map[*Subscription]struct{}
	byKey      subscribers
	byPrefix   subscribers
	byRequired map[attr]subscribers // by the value, as JSON
}

// subscribers are subscriptions by a key, prefix or value.
type subscribers map[string]map[*Subscription]struct{}

func (s subscribers) add(key string, sub *Subscription) {
	if s[key] == nil {
		s[key] = map[*Subscription]struct{}{}
	}
	s[key][sub] = struct{}{}
}

func (s subscribers) remove(key string, sub *Subscription) {
	if delete(s[key], sub); len(s[key]) == 0 {
		delete(s, key)
	}
}

func newTopic() *topic {
	return &topic{
		all: map[*Subscription]struct{}{}, byKey: subscribers{}, byPrefix: subscribers{},
		byRequired: map[attr]subscribers{},
	}
}

// requires returns a term that requires certain values of a label or field, or nil if there is none. Fields are preferred: those
// used in selectors, such as a pod's node, have many values.
func (sub *Subscription) requires() (found *Term) {
	for i := range sub.terms {
		t := &sub.terms[i]
		if _, ok := t.required(); ok && (found == nil || found.column == labelColumn && t.column == fieldColumn) {
			found = t
		}
	}
	return found
}

func (t *topic) add(sub *Subscription) {
	t.all[sub] = struct{}{}
	t.place(sub, subscribers.add)
}

func (t *topic) remove(sub *Subscription) {
	delete(t.all, sub)
	t.place(sub, subscribers.remove)
}

// place adds a subscription at its place, or removes it from there.
func (t *topic) place(sub *Subscription, do func(subscribers, string, *Subscription)) {
	if sub.single() {
		do(t.byKey, sub.prefix, sub)
		return
	}
	term := sub.requires()
	if term == nil {
		do(t.byPrefix, sub.prefix, sub)
		return
	}
	if t.byRequired[term.attr] == nil {
		t.byRequired[term.attr] = subscribers{}
	}
	for _, value := range term.values {
		do(t.byRequired[term.attr], value, sub)
	}
	if len(t.byRequired[term.attr]) == 0 {
		delete(t.byRequired, term.attr)
	}
}

// receivers appends to found the subscriptions that c may concern, each once.
func (t *topic) receivers(c *Change, found []*Subscription) []*Subscription {
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
	collect(t.byKey[key])
	collect(t.byPrefix[""])
	for i := range len(key) {
		if key[i] == '/' {
			collect(t.byPrefix[key[:i+1]])
		}
	}
	for attr, subs := range t.byRequired {
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

// values returns the values of an attribute in the versions that c made and replaced, including unknownValue.
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
