package changes

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/history"
)

// maxOwners is how long a chain of owners is followed.
const maxOwners = 5

type ownerReference struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	Controller bool      `json:"controller"`
}

// owners finds the owners of objects for one reader. It remembers those it has found.
type owners struct {
	log    *Log
	rights *rights
	known  map[types.UID][]ownersFrom
}

// ownersFrom are the owners that an object had from one revision to another.
type ownersFrom struct {
	from, to   int64
	references []ownerReference
}

const (
	// maxKnown limits of how many objects the owners are remembered.
	maxKnown = 10000
	// goneFor is how many revisions after its deletion an owner is still found: what it owned is deleted soon after it.
	goneFor = 100_000
)

// of returns the owner that references name, its owner, and so on, as they were at a revision.
func (o *owners) of(ctx context.Context, at int64, namespace string, references []ownerReference) (chain []Object, err error) {
	for len(references) > 0 && len(chain) < maxOwners {
		owner := references[0]
		for _, r := range references {
			if r.Controller {
				owner = r
				break
			}
		}
		found := Object{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
		gv, _ := schema.ParseGroupVersion(owner.APIVersion)
		resource, namespaced, served := o.log.Served.ResourceOf(schema.GroupKind{Group: gv.Group, Kind: owner.Kind})
		if served {
			found.Resource = resource.Resource
		}
		if namespaced {
			found.Namespace = namespace
		}
		chain = append(chain, found)
		if !served {
			break
		}
		if references, err = o.ownersOf(ctx, at, resource, found); err != nil {
			return nil, err
		}
	}
	return chain, nil
}

// ownersOf returns the owners that an object had at a revision, or had last if it was gone by then. They are unknown if that is no longer
// kept, and unless the user may see what the object was then.
func (o *owners) ownersOf(ctx context.Context, at int64, resource schema.GroupResource, of Object) ([]ownerReference, error) {
	known := o.known[of.UID]
	for _, k := range known {
		if k.from <= at && at <= k.to {
			return k.references, nil
		}
	}
	allowed, err := o.rights.sees(ctx, object{resource, of.Namespace, of.Name}, string(of.UID), at, true)
	if err != nil || !allowed {
		return nil, err
	}
	found, err := o.find(ctx, at, resource, of)
	if err != nil {
		return nil, err
	}
	if last := len(known) - 1; last >= 0 && slices.Equal(known[last].references, found.references) { // nor did they change in between
		known[last].from, known[last].to = min(known[last].from, found.from), max(known[last].to, found.to)
		return found.references, nil
	}
	if len(o.known) >= maxKnown {
		clear(o.known)
		known = nil
	}
	o.known[of.UID] = append(known, found)
	return found.references, nil
}

// find reads the owners that an object had at a revision: from its live version, mostly, else from history.
func (o *owners) find(ctx context.Context, at int64, resource schema.GroupResource, of Object) (ownersFrom, error) {
	stored, key := object{resource, of.Namespace, of.Name}.stored()
	references := func(r *sqlstore.Record) ([]ownerReference, bool) {
		if r == nil {
			return nil, false
		}
		data, _, err := apistorage.Decrypt(ctx, o.log.Transformer(resource), r.Value, resources.KeyPrefix(resource)+"/"+key)
		return ownersIn(data, of.UID, err)
	}
	live, _, err := o.log.Store.Get(ctx, stored, key)
	if err != nil {
		return ownersFrom{}, err
	}
	now, lives := references(live)
	if lives && live.Revision <= at {
		return ownersFrom{live.Revision, math.MaxInt64, now}, nil
	}
	page, err := o.log.Store.Page(ctx, sqlstore.Query{Resource: stored, Revision: at, Exactly: &key})
	if err != nil && !errors.Is(err, sqlstore.ErrCompacted) {
		return ownersFrom{}, err
	}
	for _, r := range page.Records {
		then, ok := references(r)
		switch {
		case !ok:
		case lives && slices.Equal(now, then): // all the time since
			return ownersFrom{r.Revision, math.MaxInt64, then}, nil
		default:
			return ownersFrom{r.Revision, at, then}, nil
		}
	}
	return o.last(ctx, at, stored, of)
}

// last reads the owners that an object had when it was deleted, at a revision or before. If it is not found, they remain unknown.
func (o *owners) last(ctx context.Context, at int64, resource sqlstore.Resource, of Object) (ownersFrom, error) {
	deletion := "delete"
	found := ownersFrom{to: math.MaxInt64}
	err := o.log.Store.Changes(ctx, history.Query{
		Resource: &resource, Namespace: &of.Namespace, Name: of.Name, Operation: &deletion,
		After: max(0, at-goneFor), Before: at + 1, NewestFirst: true,
	}, func(c *history.Change) error {
		if types.UID(c.UID) != of.UID {
			return nil
		}
		if err := c.Load(ctx); err != nil {
			return err
		}
		data, err := o.log.decrypt(ctx, c, c.Previous)
		found.references, _ = ownersIn(data, of.UID, err)
		found.from = c.ID
		return errEnough
	})
	if errors.Is(err, errEnough) || errors.Is(err, history.ErrForgotten) {
		err = nil
	}
	return found, err
}

// ownersIn returns the owners in the JSON of an object. It reports whether that could be read, and is the one with the uid.
func ownersIn(data []byte, uid types.UID, unreadable error) ([]ownerReference, bool) {
	var object struct {
		Metadata struct {
			UID             types.UID        `json:"uid"`
			OwnerReferences []ownerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if unreadable != nil || json.Unmarshal(data, &object) != nil || object.Metadata.UID != uid {
		return nil, false
	}
	return object.Metadata.OwnerReferences, true
}
