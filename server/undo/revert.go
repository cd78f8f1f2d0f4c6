package undo

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/history"
)

// subject is an object with its changes.
type subject struct {
	key
	changes []*change // the newest first, from the first that is taken back
	undone  map[int64]bool
	marking map[string]*change // the changes that marked it for deletion, by its uid
	served  changes.Served
}

// load reads which changes there are of objects, of each back to the first that is taken back.
func (s *selection) load(ctx context.Context, keys ...key) (map[key]*subject, error) {
	subjects, first := map[key]*subject{}, map[key]int64{}
	q := history.Query{After: math.MaxInt64}
	for i, k := range keys {
		subjects[k], first[k] = &subject{key: k, undone: s.undone[k], marking: map[string]*change{}, served: s.past.log.Served}, s.first(k)
		q.After = min(q.After, first[k]-1)
		switch own := k.query(); {
		case i == 0:
			q.Namespace, q.Resource = own.Namespace, own.Resource
		default:
			if q.Namespace != nil && *q.Namespace != *own.Namespace {
				q.Namespace = nil
			}
			if q.Resource != nil && *q.Resource != *own.Resource {
				q.Resource = nil
			}
		}
	}
	if len(keys) == 1 {
		q.Name = keys[0].name
	}
	only := func(c *history.Change) bool { return subjects[keyOf(c)] != nil && c.ID >= first[keyOf(c)] }
	err := s.past.walk(ctx, q, only, func(c *change) error {
		sub := subjects[c.key()]
		sub.changes = append(sub.changes, c)
		return s.account.add(changeBytes)
	})
	for _, k := range keys {
		if err == nil {
			err = subjects[k].findMarking(ctx)
		}
		for uid, c := range subjects[k].marking {
			if c != nil && s.undone[k][c.ID] {
				s.ended = append(s.ended, ended{k, uid, c.ID})
			}
		}
	}
	return subjects, err
}

// findMarking finds the changes that marked the object for deletion; it is nil if that was before all of them.
func (s *subject) findMarking(ctx context.Context) error {
	marked, decided := "", "" // the uid of an object that is or was marked, and the last one that this is known of
	for _, c := range s.changes {
		if c.UID == decided && marked != c.UID {
			continue
		}
		was, is, err := c.marks(ctx)
		if err != nil {
			return err
		}
		switch {
		case is && !was:
			s.marking[c.UID], marked = c, ""
		case is || was:
			s.marking[c.UID], marked = nil, c.UID
		}
		decided = c.UID
	}
	return nil
}

// close completes which changes are taken back: if an object's end is, so are the changes between its being marked for deletion and
// its removal, which take its finalizers.
func (s *subject) close() {
	for uid, marking := range s.marking {
		from := int64(0)
		if marking != nil {
			from = marking.ID
		}
		ends := func(c *change) bool {
			return c.UID == uid && c.ID >= from && c.Operation != creation
		}
		taken := func(c *change) bool {
			return ends(c) && s.undone[c.ID] && (c.Operation == deletion || c == marking)
		}
		if !slices.ContainsFunc(s.changes, taken) {
			continue
		}
		for _, c := range s.changes {
			if ends(c) {
				s.undone[c.ID] = true
			}
		}
	}
}

// ending is why an object can't be changed.
const ending = "it is being deleted: its finalizers must go first"

// reverted is what an object becomes.
type reverted struct {
	now       map[string]any // what it is, stripped; nil if it is not there
	object    map[string]any // what it becomes, likewise
	managers  managers       // who then has the fields that change
	uid       string         // of the former object that comes back, or of the live one
	touched   bool           // some change did more than change the status
	conflicts []Conflict
	reason    string // why nothing can be done
}

// revert takes back the changes, the newest first. live is the object as it is, nil if there is none.
func (s *subject) revert(ctx context.Context, live *unstructured.Unstructured, force bool) (*reverted, error) {
	r := &reverted{managers: managers{}}
	if live != nil {
		r.now, r.uid = Strip(s.served, s.groupResource(), live.DeepCopy().Object), string(live.GetUID())
		r.object = r.now
		if c := s.marking[r.uid]; c != nil && s.undone[c.ID] && live.GetDeletionTimestamp() != nil {
			r.touched, r.reason = true, ending
			return r, nil
		}
	}
	for i := 0; i < len(s.changes) && r.reason == ""; i++ {
		newest := s.changes[i]
		if !s.undone[newest.ID] {
			continue
		}
		if newest.Operation != update {
			if err := s.revertOne(ctx, r, newest, force); err != nil {
				return r, err
			}
			continue
		}
		for i+1 < len(s.changes) && s.follows(newest, s.changes[i+1]) {
			i++
		}
		if err := s.putBack(ctx, r, newest, s.changes[i], force); err != nil {
			return r, err
		}
	}
	return r, nil
}

// follows reports whether an update can be taken back together with one right before it: what is in between does not matter then, so
// that of many updates only the first and the last need be read.
func (s *subject) follows(newest, before *change) bool {
	return before.Operation == update && before.UID == newest.UID && s.undone[before.ID]
}

// forgotten is why a change can't be taken back.
const forgotten = "history does not have its former version any more"

// revertOne takes back a creation or a deletion.
func (s *subject) revertOne(ctx context.Context, r *reverted, c *change, force bool) error {
	before, after, managed, err := c.versions(ctx)
	switch {
	case err != nil:
		return err
	case c.Operation != creation && before == nil:
		r.touched, r.reason = true, forgotten
	case c.Operation == creation:
		return s.removeAgain(ctx, r, c, after, force)
	default:
		return s.bringBack(r, c, before, managersOf(managed), force)
	}
	return nil
}

// removeAgain takes back a creation.
func (s *subject) removeAgain(ctx context.Context, r *reverted, c *change, after map[string]any, force bool) error {
	r.touched = true
	if r.object == nil || r.uid != c.UID && !s.madeByUndo() {
		return nil // deleted since, and perhaps made by another
	}
	if !reflect.DeepEqual(r.object, after) {
		since, err := s.since(c, func(later *change) (bool, error) {
			if automatic(later.Change) {
				return false, nil
			}
			return later.touches(ctx, "")
		})
		if err != nil {
			return err
		}
		if since != nil {
			r.conflicts = append(r.conflicts, Conflict{Change: since.reference(), Forced: force})
			if !force {
				r.reason = "it has been changed since"
				return nil
			}
		}
	}
	r.object, r.uid, r.managers = nil, "", managers{}
	return nil
}

// bringBack takes back a deletion.
func (s *subject) bringBack(r *reverted, c *change, before map[string]any, had managers, force bool) error {
	r.touched = true
	if r.object == nil {
		r.managers.goBack(had, r.object, before)
		r.object, r.uid = before, c.UID
		return nil
	}
	if r.uid == c.UID || reflect.DeepEqual(r.object, before) {
		return nil
	}
	made, err := s.since(c, is(creation))
	if err != nil || made != nil && made.FieldManager == Manager {
		return err // an undo has brought it back, or this one has before it stopped
	}
	conflict := Conflict{Forced: force}
	if made != nil {
		conflict.Change = made.reference()
	}
	r.conflicts = append(r.conflicts, conflict)
	if force {
		r.managers.goBack(had, r.object, before)
		r.object = before
	} else {
		r.reason = "it has been made anew since"
	}
	return nil
}

// putBack takes back updates, from the oldest to the newest.
func (s *subject) putBack(ctx context.Context, r *reverted, newest, oldest *change, force bool) error {
	before, after, managed, err := newest.versions(ctx)
	if err == nil && oldest != newest {
		before, _, managed, err = oldest.versions(ctx)
	}
	if err != nil {
		return err
	}
	if before == nil || after == nil {
		r.touched, r.reason = true, forgotten
		return nil
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	r.touched = true
	if r.object == nil || r.uid != newest.UID && !s.madeByUndo() {
		r.reason = "it has been deleted since"
		gone, err := s.since(newest, is(deletion))
		if gone != nil {
			r.conflicts = append(r.conflicts, Conflict{Change: gone.reference()})
		}
		return err
	}
	m, was := merge{force: force}, r.object
	r.object = m.fields("", before, after, was)
	r.managers.goBack(managersOf(managed), was, r.object)
	for _, path := range m.conflicts {
		if strings.HasSuffix(path, `["`+lastApplied+`"]`) {
			continue // it repeats other fields, whose conflicts are reported
		}
		conflict := Conflict{Path: path, Forced: force}
		since, err := s.since(newest, func(later *change) (bool, error) { return later.touches(ctx, path) })
		if err != nil {
			return err
		}
		if since != nil {
			conflict.Change = since.reference()
		}
		r.conflicts = append(r.conflicts, conflict)
	}
	return nil
}

// madeByUndo reports whether the object that exists was brought back by an undo.
func (s *subject) madeByUndo() bool {
	for _, c := range s.changes {
		if c.Operation == creation {
			return c.FieldManager == Manager
		}
	}
	return false
}

func is(operation string) func(*change) (bool, error) {
	return func(c *change) (bool, error) { return string(c.Operation) == operation, nil }
}

// since returns the newest change after c that is not taken back and that is so.
func (s *subject) since(c *change, is func(*change) (bool, error)) (*change, error) {
	for _, later := range s.changes {
		if later.ID <= c.ID {
			break
		}
		if s.undone[later.ID] {
			continue
		}
		if so, err := is(later); so || err != nil {
			return later, err
		}
	}
	return nil, nil
}

// within reports whether a field is other, or in it.
func within(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || other == "" || rest[0] == '.' || rest[0] == '[')
}
