package undo

import (
	"context"
	"math"
	"slices"

	"github.com/sqube/sqube/sqlstore/history"
)

// trace is a deletion that may have followed from another.
type trace struct {
	key
	uid      string
	revision int64
}

// traces are deletions.
type traces struct {
	all     []trace
	byUID   map[string][]trace
	byOwner map[string][]trace
}

// follow adds the deletions that followed from those that are selected: of what was in a namespace, of the objects of a definition,
// and of what the garbage collector deleted with its owner. It returns the objects that were not selected before.
func (s *selection) follow(ctx context.Context) (more []key, err error) {
	if len(s.ended) == 0 {
		return nil, nil
	}
	q := history.Query{After: math.MaxInt64}
	within := s.ended[0].scope()
	for _, e := range s.ended {
		q.After = min(q.After, e.from-1)
		if e.scope() != within {
			within = ""
		}
	}
	found := &traces{byUID: map[string][]trace{}, byOwner: map[string][]trace{}}
	deletions := func(c *history.Change) bool { return c.Operation == deletion }
	add := func(c *change) error { return s.trace(ctx, found, c) }
	if within != "" { // where objects without a namespace are not
		q.Namespace = &within
		for _, e := range s.ended {
			if e.namespace != "" {
				continue
			}
			own := e.query()
			own.After = e.from - 1
			if err := s.past.walk(ctx, own, deletions, add); err != nil {
				return nil, err
			}
		}
	}
	if err := s.walk(ctx, q, deletions, add); err != nil {
		return nil, err
	}
	for i := 0; i < len(s.ended); i++ { // which grows
		e := s.ended[i]
		for _, t := range found.from(e) {
			if t.revision < e.from || s.undone[t.key][t.revision] {
				continue
			}
			if s.undone[t.key] == nil {
				more = append(more, t.key)
			}
			if err := s.mark(t.key, t.revision); err != nil {
				return nil, err
			}
			s.ended = append(s.ended, ended{t.key, t.uid, t.revision})
		}
	}
	return more, nil
}

// trace adds a deletion to traces. Its owners need not be known if it followed from that of what held it.
func (s *selection) trace(ctx context.Context, t *traces, c *change) error {
	if len(t.all) == maxChanges {
		return tooMuch("changes", maxChanges)
	}
	if err := s.account.add(changeBytes); err != nil {
		return err
	}
	made := trace{c.key(), c.UID, c.ID}
	t.all = append(t.all, made)
	t.byUID[c.UID] = append(t.byUID[c.UID], made)
	if slices.ContainsFunc(s.ended, func(e ended) bool { return e.holds(made.key) && e.from <= c.ID }) {
		return nil
	}
	e, err := c.read(ctx)
	if err != nil {
		return err
	}
	for _, owner := range owners(e.Before) {
		t.byOwner[owner] = append(t.byOwner[owner], made)
	}
	return nil
}

// scope is the namespace of everything that can have followed from the deletion, "" if that is not known.
func (e ended) scope() string {
	if e.of(namespaces) {
		return e.name
	}
	return e.namespace
}

// from returns the deletions that followed from that of e, and its own.
func (t *traces) from(e ended) (followed []trace) {
	end := int64(math.MaxInt64) // not gone yet
	for _, own := range t.byUID[e.uid] {
		if own.key == e.key {
			end = own.revision
			followed = append(followed, own)
		}
	}
	followed = append(followed, t.byOwner[e.uid]...)
	if _, holds := e.content(); holds {
		for _, other := range t.all {
			if e.holds(other.key) && other.revision <= end {
				followed = append(followed, other)
			}
		}
	}
	return followed
}
