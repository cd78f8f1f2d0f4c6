package undo

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/sqlstore/inspect"
)

// subject is an object with its changes.
type subject struct {
	key
	changes []*Change // the newest first, from the first that is taken back
	undone  map[int64]bool
}

// load reads the changes of an object back to the first that is taken back, and completes which are: if its end is, so are the
// changes between its being marked for deletion and its removal, which take its finalizers.
func (s *selection) load(ctx context.Context, k key) (*subject, error) {
	sub := &subject{key: k, undone: s.undone[k]}
	q := k.query()
	q.After = s.first(k) - 1
	if err := walk(ctx, s.history, q, func(c *Change) error { sub.changes = append(sub.changes, c); return nil }); err != nil {
		return nil, err
	}
	all := slices.Clone(sub.changes)
	slices.Reverse(all)
	ending := "" // the uid of the object whose end is taken back
	for _, c := range all {
		if c.ends() && sub.undone[c.Revision] {
			ending = c.UID
		}
		if c.UID == ending && c.Operation != Created {
			sub.undone[c.Revision] = true
		}
	}
	gone := "" // the uid of the object whose removal is taken back
	for _, c := range sub.changes {
		if c.Operation == Deleted && sub.undone[c.Revision] {
			gone = c.UID
		}
		if c.UID == gone && marked(c.After) {
			sub.undone[c.Revision] = true
		}
	}
	return sub, nil
}

// reverted is what an object becomes.
type reverted struct {
	object    map[string]any // stripped; nil if it is not there
	uid       string         // of the former object that comes back, or of the live one
	revision  int64          // of the change that the object comes back from
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
		if !s.undone[c.Revision] {
			continue
		}
		if err := s.revertOne(r, c, force); err != nil || r.reason != "" {
			return r, err
		}
	}
	return r, nil
}

func (s *subject) revertOne(r *reverted, c *Change, force bool) error {
	if c.Operation != Created && c.Before == nil {
		r.touched, r.reason = true, "history does not have its former version any more"
		return nil
	}
	was, err := decode(c.Before)
	if err != nil {
		return err
	}
	became, err := decode(c.After)
	if err != nil {
		return err
	}
	before, after := strip(was), strip(became)
	switch c.Operation {
	case Created:
		s.removeAgain(r, c, after, force)
	case Deleted:
		s.bringBack(r, c, before, force)
	default:
		s.putBack(r, c, before, after, force)
	}
	return nil
}

// removeAgain takes back a creation.
func (s *subject) removeAgain(r *reverted, c *Change, after map[string]any, force bool) {
	r.touched = true
	if r.object == nil || r.uid != c.UID {
		return // deleted since, and perhaps made by another
	}
	if !reflect.DeepEqual(r.object, after) {
		if since := s.since(c, func(later *Change) bool { return !automatic(later.User) && s.touches(later, "") }); since != nil {
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
func (s *subject) bringBack(r *reverted, c *Change, before map[string]any, force bool) {
	r.touched = true
	if r.object == nil {
		r.object, r.uid, r.revision = before, c.UID, c.Revision
		return
	}
	if r.uid == c.UID || reflect.DeepEqual(r.object, before) {
		return
	}
	made := s.since(c, func(later *Change) bool { return later.Operation == Created })
	if made != nil && made.Manager == Manager {
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
func (s *subject) putBack(r *reverted, c *Change, before, after map[string]any, force bool) {
	if reflect.DeepEqual(before, after) {
		return
	}
	r.touched = true
	if r.object == nil || r.uid != c.UID && !s.madeByUndo() {
		r.reason = "it has been deleted since"
		if gone := s.since(c, func(later *Change) bool { return later.Operation == Deleted }); gone != nil {
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
		if since := s.since(c, func(later *Change) bool { return s.touches(later, path) }); since != nil {
			conflict.Change = since.reference()
		}
		r.conflicts = append(r.conflicts, conflict)
	}
}

// madeByUndo reports whether the object that exists was brought back by an undo.
func (s *subject) madeByUndo() bool {
	for _, c := range s.changes {
		if c.Operation == Created {
			return c.Manager == Manager
		}
	}
	return false
}

// since returns the newest change after c that is not taken back and that is so.
func (s *subject) since(c *Change, is func(*Change) bool) *Change {
	for _, later := range s.changes {
		if later.Revision <= c.Revision {
			break
		}
		if !s.undone[later.Revision] && is(later) {
			return later
		}
	}
	return nil
}

// touches reports whether a change changed a field, or anything but the status if path is "".
func (s *subject) touches(c *Change, path string) bool {
	was, err := decode(c.Before)
	if err != nil {
		return false
	}
	became, err := decode(c.After)
	if err != nil || was == nil || became == nil {
		return true
	}
	return slices.ContainsFunc(inspect.DifferencesOf(strip(was), strip(became)), func(d inspect.Difference) bool {
		return strings.HasPrefix(d.Path, path) || strings.HasPrefix(path, d.Path)
	})
}
