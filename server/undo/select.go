package undo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/sqlstore"
)

// Manager is the field manager of an undo's writes.
const Manager = "sqube-undo"

// selection are the changes to take back.
type selection struct {
	history History
	// undone are the revisions of the changes, by object.
	undone map[key]map[int64]bool
	// wholly are the objects that are brought back to a revision: all their later changes are taken back.
	wholly map[key]int64
	ended  []ended
}

// ended is an object that was deleted, or marked for deletion, by a change that is taken back.
type ended struct {
	key
	uid  string
	from int64 // the revision of the change that marked it, or else removed it
}

// trace is a deletion that may have followed from another.
type trace struct {
	key
	uid      string
	revision int64
	owners   []string
}

func newSelection(h History) *selection {
	return &selection{history: h, undone: map[key]map[int64]bool{}, wholly: map[key]int64{}}
}

// add takes a change back.
func (s *selection) add(c *Change) {
	k := c.key()
	s.mark(k, c.Revision)
	if c.Operation == Deleted || c.ends() {
		s.ended = append(s.ended, ended{k, c.UID, c.Revision})
	}
}

func (s *selection) mark(k key, revision int64) {
	if s.undone[k] == nil {
		s.undone[k] = map[int64]bool{}
	}
	s.undone[k][revision] = true
}

// first returns the lowest revision that is taken back of an object.
func (s *selection) first(k key) int64 {
	first := int64(math.MaxInt64)
	for revision := range s.undone[k] {
		first = min(first, revision)
	}
	return first
}

// changes selects by who and when.
func (s *selection) changes(ctx context.Context, c *ChangeSelector) error {
	q := Query{After: c.AfterRevision, Before: c.BeforeRevision}
	if c.Namespace != "" {
		q.Namespace = &c.Namespace
	}
	if len(c.Resources) == 1 {
		q.Resource, q.Group, _ = strings.Cut(c.Resources[0], ".")
	}
	return walk(ctx, s.history, q, func(change *Change) error {
		if c.Since != nil && change.Written.Before(c.Since.Time) {
			return errEnough
		}
		if c.matches(change) {
			s.add(change)
		}
		return nil
	})
}

func (c *ChangeSelector) matches(change *Change) bool {
	if len(c.Resources) > 0 {
		name := strings.TrimSuffix(change.Resource+"."+change.Group, ".")
		if !slices.Contains(c.Resources, name) {
			return false
		}
	}
	switch {
	case transient(change.key()),
		c.Until != nil && !change.Written.Before(c.Until.Time),
		c.User != "" && c.User != change.User,
		c.FieldManager != "" && c.FieldManager != change.Manager,
		// An undo that is run again must not take itself back.
		c.FieldManager == "" && change.Manager == Manager && !c.one(change):
		return false
	}
	// What controllers do follows from what others did. They will do it again, or take it back themselves.
	return c.User != "" || c.FieldManager != "" || c.one(change) || !automatic(change.User)
}

// one reports whether the selector is of just one change, by its revision.
func (c *ChangeSelector) one(change *Change) bool {
	return c.AfterRevision == change.Revision-1 && c.BeforeRevision == change.Revision+1
}

// automatic reports whether a user is a part of the control plane.
func automatic(name string) bool {
	switch name {
	case user.APIServerUser, user.KubeControllerManager, user.KubeScheduler, sqlstore.ExpiryAuthor:
		return true
	}
	return strings.HasPrefix(name, serviceaccount.MakeUsername("kube-system", "")) || strings.HasPrefix(name, "system:node:")
}

// object selects the changes of one object since a moment, or its deletion.
func (s *selection) object(ctx context.Context, k key, to *Moment) error {
	if to != nil {
		return s.since(ctx, k, to)
	}
	var now, last *Change // the newest change of the object that exists, and the oldest that is taken back
	err := walk(ctx, s.history, k.query(), func(c *Change) error {
		if last == nil && c.Operation != Deleted { // it exists; if an undo has made it, what was before is meant
			if now == nil {
				now = c
			}
			if c.Operation == Created && c.Manager == Manager {
				now = nil
			} else if c.Operation == Created {
				return errEnough
			}
			return nil
		}
		if now != nil || last != nil && c.UID != last.UID {
			return errEnough
		}
		last = c
		s.mark(k, c.Revision)
		if c.Operation == Deleted || c.ends() {
			s.add(c)
		}
		if c.ends() || !marked(c.Before) {
			return errEnough
		}
		return nil
	})
	switch {
	case err == nil && now != nil && marked(now.After):
		return fmt.Errorf("%s is still being deleted: its finalizers, or what is in it, must go first", k)
	case err == nil && now != nil:
		return fmt.Errorf("%s exists: say to which moment it shall go back (spec.to)", k)
	}
	if err == nil && last == nil {
		err = fmt.Errorf("history has no %s: it never was, was deleted longer ago than history reaches, or you may not get it", k)
	}
	return err
}

// since selects all changes of an object after a moment, and of what is in it.
func (s *selection) since(ctx context.Context, k key, to *Moment) error {
	revision, until := to.Revision, time.Time{}
	if to.Before != 0 {
		revision = to.Before - 1
	}
	if to.Time != nil {
		until = to.Time.Time
	}
	queries := []Query{k.query()}
	if k.of(namespaces) {
		queries = append(queries, Query{Namespace: &k.name})
	}
	if plural, group, _ := strings.Cut(k.name, "."); k.of(definitions) {
		queries = append(queries, Query{Group: group, Resource: plural})
	}
	known := false
	for i, q := range queries {
		q.After = revision
		if err := walk(ctx, s.history, q, func(c *Change) error {
			if !until.IsZero() && !c.Written.After(until) {
				return errEnough
			}
			if i == 0 || !transient(c.key()) {
				known = true
				s.wholly[c.key()] = c.Revision - 1
				s.add(c)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if !known {
		return fmt.Errorf("%s has not changed since then, as far as history reaches and you may know", k)
	}
	return nil
}

// follow adds the deletions that followed from those that are selected: of what was in a namespace, of the objects of a definition,
// and of what the garbage collector deleted with its owner.
func (s *selection) follow(ctx context.Context) error {
	if len(s.ended) == 0 {
		return nil
	}
	q := Query{After: math.MaxInt64}
	within := s.ended[0].scope()
	for _, e := range s.ended {
		q.After = min(q.After, e.from-1)
		if e.scope() != within {
			within = ""
		}
	}
	if within != "" {
		q.Namespace = &within
	}
	var traces []trace
	for _, e := range s.ended {
		if !e.of(namespaces) && !e.of(definitions) {
			continue
		}
		own := e.query()
		own.After = e.from - 1
		if err := walk(ctx, s.history, own, func(c *Change) error {
			if c.Operation == Deleted {
				traces = append(traces, trace{key: e.key, uid: c.UID, revision: c.Revision})
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if err := walk(ctx, s.history, q, func(c *Change) error {
		if c.Operation == Deleted && !transient(c.key()) {
			traces = append(traces, trace{c.key(), c.UID, c.Revision, owners(c.Before)})
		}
		return nil
	}); err != nil {
		return err
	}
	for i := 0; i < len(s.ended); i++ { // which grows
		e := s.ended[i]
		end := e.end(traces)
		for _, t := range traces {
			if t.revision >= e.from && e.took(t, end) && !s.undone[t.key][t.revision] {
				s.mark(t.key, t.revision)
				s.ended = append(s.ended, ended{t.key, t.uid, t.revision})
			}
		}
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

// end returns when the object was gone.
func (e ended) end(traces []trace) int64 {
	for _, t := range traces {
		if t.key == e.key && t.uid == e.uid {
			return t.revision
		}
	}
	return math.MaxInt64 // not gone yet
}

// took reports whether a deletion followed from that of e.
func (e ended) took(t trace, end int64) bool {
	switch {
	case t.key == e.key:
		return t.uid == e.uid
	case e.of(namespaces) && t.namespace == e.name, e.of(definitions) && t.resource+"."+t.group == e.name:
		return t.revision <= end
	}
	return slices.Contains(t.owners, e.uid)
}
