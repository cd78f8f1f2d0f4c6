package undo

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/history"
)

// maxHidden is how many objects are counted that the user may not see.
const maxHidden = 1000

// living are the objects that the garbage collector would delete with their owners. They are read with the server's own rights, since a
// deletion does not stop at what its user may see.
type living struct {
	at      int64 // the revision of this
	byOwner map[string][]*dependant
	all     map[key]*dependant
}

// dependant is an object that has owners.
type dependant struct {
	key
	uid      string
	revision int64
	maker    string // the uid of the owner whose controller has made it, and makes it again or has no use for it any more
	busy     bool   // it was changed last by a controller, not by a person
	marked   bool   // for deletion
}

// dependantBytes is roughly what one takes.
const dependantBytes = 300

// victims are what a deletion would destroy beside what the plan deletes.
type victims struct {
	known  map[key]bool
	seen   *seen // the first one that the user may see
	hidden int   // how many others there are
}

// seen is an object at a revision.
type seen struct {
	key
	revision int64
}

// spare leaves what would be deleted, but would take with it what the plan does not delete: others have made or changed it since. What the
// user may not see is never destroyed, and only counted.
func (p *planner) spare(ctx context.Context, steps []Step) error {
	if p.deleted == nil {
		p.deleted = map[key]string{}
		for _, s := range steps {
			if s.Action == Delete {
				p.deleted[s.work.key] = s.work.live.GetResourceVersion()
			}
		}
	}
	if err := p.look(ctx, steps); err != nil {
		return err
	}
	for again := true; again; { // what is left may be what another deletion would destroy
		again = false
		for i := range steps {
			step := &steps[i]
			if step.Action != Delete {
				continue
			}
			v, err := p.victims(ctx, step.work)
			if err != nil {
				return err
			}
			conflict := Conflict{Forced: p.spec.Force, destroys: true}
			if v.seen != nil {
				if conflict.Change, err = p.referenceOf(ctx, v.seen); err != nil {
					return err
				}
			}
			step.Conflicts = slices.DeleteFunc(step.Conflicts, func(c Conflict) bool { return c.destroys })
			if v.seen != nil {
				step.Conflicts = append(step.Conflicts, conflict)
			}
			switch {
			case v.hidden > 0:
				step.Action, step.Reason = Leave, fmt.Sprintf("it has objects that you may not see, and that would be deleted with it: %d", v.hidden)
				if v.hidden == maxHidden {
					step.Reason += " or more"
				}
			case v.seen != nil && !p.spec.Force:
				step.Action, step.Reason = Leave, fmt.Sprintf("it has %s, which would be deleted with it", v.seen.key)
			default:
				continue
			}
			delete(p.deleted, step.work.key)
			again = true
		}
	}
	return nil
}

// victims finds what the deletion of an object would destroy beside what the plan deletes.
func (p *planner) victims(ctx context.Context, w *work) (v victims, err error) {
	v.known = map[key]bool{}
	if q, holds := w.content(); holds {
		err = p.contentOf(ctx, q, &v)
	}
	gone := map[string]bool{}
	for owners := []string{string(w.live.GetUID())}; err == nil && len(owners) > 0; {
		uid := owners[0]
		owners = owners[1:]
		if gone[uid] {
			continue
		}
		gone[uid] = true
		for _, d := range p.living.byOwner[uid] {
			if err != nil || p.living.all[d.key] != d || d.marked || p.deletes(d.key, d.revision, d.busy) {
				continue
			}
			owners = append(owners, d.uid)
			if d.maker != uid {
				err = p.count(ctx, d.key, d.revision, &v)
			}
		}
	}
	return v, err
}

// referenceOf returns the change that made an object what it is.
func (p *planner) referenceOf(ctx context.Context, s *seen) (r ChangeReference, err error) {
	q := s.query()
	q.After, q.Before = s.revision-1, s.revision+1
	r.Revision = s.revision
	return r, p.past.walk(ctx, q, nil, func(c *change) error {
		r = c.reference()
		return nil
	})
}

// contentOf finds what is in a namespace, or of a definition.
func (p *planner) contentOf(ctx context.Context, q history.Query, v *victims) error {
	people := map[history.Resource]map[string]bool{}
	return walked(p.past.log.Live(ctx, q, false, func(e *changes.Entry) error {
		c := &change{Change: e.Change, log: p.past.log, lately: &p.past.lately}
		if v.hidden == maxHidden {
			return errEnough
		}
		if p.deletes(c.key(), c.ID, automatic(c.Change)) {
			return nil
		}
		if c.key().record() && !person(c.Change) {
			resource := history.Resource{Group: c.Group, Name: c.Resource}
			if people[resource] == nil {
				var err error
				if people[resource], err = peoples(ctx, p.past.walkAll, q, resource); err != nil {
					return err
				}
			}
			if !people[resource][c.UID] {
				return nil
			}
		}
		e, err := c.read(ctx)
		if err != nil {
			return err
		}
		object, err := decode(e.After)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{Object: object}
		if object != nil && (o.GetDeletionTimestamp() != nil || Remade(c.key().groupResource(), o) != "") {
			return nil
		}
		return p.count(ctx, c.key(), c.ID, v)
	}))
}

// deletes reports whether the plan deletes an object as it is, or as a controller has changed it meanwhile.
func (p *planner) deletes(k key, revision int64, busy bool) bool {
	version, planned := p.deleted[k]
	return planned && (busy || version == fmt.Sprint(revision))
}

// count adds an object to the victims.
func (p *planner) count(ctx context.Context, k key, revision int64, v *victims) error {
	if v.known[k] {
		return nil
	}
	v.known[k] = true
	allowed, err := p.past.mayGet(ctx, k.groupResource(), k.namespace, k.name)
	switch {
	case err != nil:
		return err
	case !allowed && v.hidden < maxHidden:
		v.hidden++
	case allowed && v.seen == nil:
		v.seen = &seen{k, revision}
	}
	return nil
}

// look reads the objects that have owners, where what the steps delete can own them, and later what has changed since.
func (p *planner) look(ctx context.Context, steps []Step) error {
	if !slices.ContainsFunc(steps, func(s Step) bool { return s.Action == Delete }) {
		return nil
	}
	position, err := p.past.log.Store.Position(ctx)
	if err != nil {
		return apistorage.ClientError(err)
	}
	if p.living != nil {
		since := history.Query{After: p.living.at}
		p.living.at = position.Revision
		seen := map[key]bool{}
		newest := func(c *history.Change) bool {
			before := seen[keyOf(c)]
			seen[keyOf(c)] = true
			return !before
		}
		return p.past.walkAll(ctx, since, newest, func(c *change) error {
			if c.Operation == deletion {
				delete(p.living.all, c.key())
				return nil
			}
			e, err := c.read(ctx)
			if err != nil {
				return err
			}
			return p.own(c, e.After)
		})
	}
	p.living = &living{at: position.Revision, byOwner: map[string][]*dependant{}, all: map[key]*dependant{}}
	for _, namespace := range p.scopes(steps) {
		err := walked(p.past.log.Live(ctx, history.Query{Namespace: namespace}, true, func(e *changes.Entry) error {
			value := e.After
			e.Value = nil
			return p.own(&change{Change: e.Change, log: p.past.log, lately: &p.past.lately}, value)
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// scopes are the namespaces of what the steps delete, nil for all: what has no namespace can own objects in each.
func (p *planner) scopes(steps []Step) (all []*string) {
	const most = 20
	known := map[string]bool{}
	for _, s := range steps {
		if s.Action != Delete || known[s.work.namespace] {
			continue
		}
		if s.work.namespace == "" || len(all) == most {
			return []*string{nil}
		}
		known[s.work.namespace] = true
		all = append(all, &s.work.namespace)
	}
	return all
}

// own notes the owners of an object.
func (p *planner) own(c *change, value []byte) error {
	delete(p.living.all, c.key())
	if owners(value) == nil {
		return nil
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(value, &object); err != nil {
		return fmt.Errorf("%s: %w", c.key(), err)
	}
	d := &dependant{key: c.key(), uid: c.UID, revision: c.ID, busy: automatic(c.Change), marked: object.DeletionTimestamp != nil}
	if owner := metav1.GetControllerOf(&object); owner != nil && !person(c.Change) {
		d.maker = string(owner.UID)
	}
	p.living.all[d.key] = d
	for _, owner := range object.OwnerReferences {
		p.living.byOwner[string(owner.UID)] = append(p.living.byOwner[string(owner.UID)], d)
	}
	return p.account.add(dependantBytes)
}
