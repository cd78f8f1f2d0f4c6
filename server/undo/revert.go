package undo

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/sqlstore/fieldpath"
	"github.com/sqube/sqube/sqlstore/history"
)

// subject is an object with its changes.
type subject struct {
	key
	changes []*change // the newest first, from the first that is taken back
	undone  map[int64]bool
}

// load reads the changes of objects, of each back to the first that is taken back.
func (s *selection) load(ctx context.Context, keys ...key) (map[key]*subject, error) {
	subjects, first := map[key]*subject{}, map[key]int64{}
	q := history.Query{After: math.MaxInt64}
	for i, k := range keys {
		subjects[k], first[k] = &subject{key: k, undone: s.undone[k]}, s.first(k)
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
	size := 0
	only := func(c *history.Change) bool { return subjects[keyOf(c)] != nil && c.ID >= first[keyOf(c)] }
	err := s.past.walk(ctx, q, only, func(c *change) error {
		sub := subjects[c.key()]
		if len(sub.changes) > 0 { // the newest has the object's kind
			if err := c.thin(); err != nil {
				return err
			}
		}
		sub.changes = append(sub.changes, c)
		if size += len(c.Before) + len(c.After); size > maxBytes {
			return tooMuch("bytes in the versions of objects", maxBytes)
		}
		return nil
	})
	for _, sub := range subjects {
		sub.close()
	}
	return subjects, err
}

// close completes which changes are taken back: if an object's end is, so are the changes between its being marked for deletion and
// its removal, which take its finalizers.
func (s *subject) close() {
	ending := "" // the uid of the object whose end is taken back
	for _, c := range slices.Backward(s.changes) {
		if c.ends() && s.undone[c.ID] {
			ending = c.UID
		}
		if c.UID == ending && c.Operation != creation {
			s.undone[c.ID] = true
		}
	}
	gone := "" // the uid of the object whose removal is taken back
	for _, c := range s.changes {
		if c.Operation == deletion && s.undone[c.ID] {
			gone = c.UID
		}
		if c.UID == gone && c.marked {
			s.undone[c.ID] = true
		}
	}
}

// ending is why an object can't be changed.
const ending = "it is being deleted: its finalizers must go first"

// reverted is what an object becomes.
type reverted struct {
	object    map[string]any // stripped; nil if it is not there
	uid       string         // of the former object that comes back, or of the live one
	touched   bool           // some change did more than change the status
	conflicts []Conflict
	reason    string // why nothing can be done
}

// revert takes back the changes, the newest first. live is the object as it is, nil if there is none.
func (s *subject) revert(live *unstructured.Unstructured, force bool) (*reverted, error) {
	r := &reverted{}
	if live != nil {
		r.object, r.uid = strip(live.DeepCopy().Object), string(live.GetUID())
	}
	for _, c := range s.changes {
		if !s.undone[c.ID] {
			continue
		}
		if err := s.revertOne(r, c, force); err != nil || r.reason != "" {
			return r, err
		}
	}
	return r, nil
}

func (s *subject) revertOne(r *reverted, c *change, force bool) error {
	if c.ends() && r.object != nil && r.uid == c.UID {
		r.touched, r.reason = true, ending
		return nil
	}
	if c.idle {
		return nil
	}
	if c.Operation != creation && c.Before == nil {
		r.touched, r.reason = true, "history does not have its former version any more"
		return nil
	}
	before, after, err := c.versions()
	if err != nil {
		return err
	}
	switch c.Operation {
	case creation:
		s.removeAgain(r, c, after, force)
	case deletion:
		s.bringBack(r, c, before, force)
	default:
		s.putBack(r, c, before, after, force)
	}
	return nil
}

// removeAgain takes back a creation.
func (s *subject) removeAgain(r *reverted, c *change, after map[string]any, force bool) {
	r.touched = true
	if r.object == nil || r.uid != c.UID && !s.madeByUndo() {
		return // deleted since, and perhaps made by another
	}
	if !reflect.DeepEqual(r.object, after) {
		if since := s.since(c, func(later *change) bool { return !automatic(later.Change) && s.touches(later, "") }); since != nil {
			r.conflicts = append(r.conflicts, Conflict{Change: since.reference(), Forced: force})
			if !force {
				r.reason = "it has been changed since"
				return
			}
		}
	}
	r.object, r.uid = nil, ""
}

// bringBack takes back a deletion.
func (s *subject) bringBack(r *reverted, c *change, before map[string]any, force bool) {
	r.touched = true
	if r.object == nil {
		r.object, r.uid = before, c.UID
		return
	}
	if r.uid == c.UID || reflect.DeepEqual(r.object, before) {
		return
	}
	made := s.since(c, func(later *change) bool { return later.Operation == creation })
	if made != nil && made.FieldManager == Manager {
		return // an undo has brought it back, or this one has before it stopped
	}
	conflict := Conflict{Forced: force}
	if made != nil {
		conflict.Change = made.reference()
	}
	r.conflicts = append(r.conflicts, conflict)
	if force {
		r.object = before
	} else {
		r.reason = "it has been made anew since"
	}
}

// putBack takes back an update.
func (s *subject) putBack(r *reverted, c *change, before, after map[string]any, force bool) {
	if reflect.DeepEqual(before, after) {
		return
	}
	r.touched = true
	if r.object == nil || r.uid != c.UID && !s.madeByUndo() {
		r.reason = "it has been deleted since"
		if gone := s.since(c, func(later *change) bool { return later.Operation == deletion }); gone != nil {
			r.conflicts = append(r.conflicts, Conflict{Change: gone.reference()})
		}
		return
	}
	m := merge{force: force}
	r.object = m.fields("", before, after, r.object)
	for _, path := range m.conflicts {
		if strings.HasSuffix(path, `["`+lastApplied+`"]`) {
			continue // it repeats other fields, whose conflicts are reported
		}
		conflict := Conflict{Path: path, Forced: force}
		if since := s.since(c, func(later *change) bool { return s.touches(later, path) }); since != nil {
			conflict.Change = since.reference()
		}
		r.conflicts = append(r.conflicts, conflict)
	}
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

// since returns the newest change after c that is not taken back and that is so.
func (s *subject) since(c *change, is func(*change) bool) *change {
	for _, later := range s.changes {
		if later.ID <= c.ID {
			break
		}
		if !s.undone[later.ID] && is(later) {
			return later
		}
	}
	return nil
}

// touches reports whether a change changed a field, or anything but the status if path is "".
func (s *subject) touches(c *change, path string) bool {
	before, after, err := c.versions()
	if err != nil || c.idle {
		return false
	}
	if before == nil || after == nil {
		return true
	}
	return slices.ContainsFunc(fieldpath.DifferencesOf(before, after), func(d fieldpath.Difference) bool {
		return within(d.Path, path) || within(path, d.Path)
	})
}

// within reports whether a field is other, or in it.
func within(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || other == "" || rest[0] == '.' || rest[0] == '[')
}
