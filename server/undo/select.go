package undo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/history"
)

// Manager is the field manager of an undo's writes.
const Manager = "sqube-undo"

// selection are the changes to take back.
type selection struct {
	past *past
	// undone are the revisions of the changes, by object.
	undone map[key]map[int64]bool
	count  int // of these revisions
	most   int // of the objects
	// wholly are the objects that are brought back to a moment: all their later changes are taken back.
	wholly  map[key]bool
	ended   []ended
	left    map[string]int // how many records are left out, by resource
	notes   []string
	account *account
}

// ended is an object that was deleted, or marked for deletion, by a change that is taken back.
type ended struct {
	key
	uid  string
	from int64 // the revision of the change that marked it, or else removed it
}

// add takes a change back.
func (s *selection) add(c *change) error {
	if c.Operation == deletion {
		s.ended = append(s.ended, ended{c.key(), c.UID, c.ID})
	}
	return s.mark(c.key(), c.ID)
}

func (s *selection) mark(k key, revision int64) error {
	if s.undone[k] == nil {
		s.undone[k] = map[int64]bool{}
	}
	s.undone[k][revision] = true
	switch s.count++; {
	case len(s.undone) > s.most:
		return tooMuch("objects", s.most)
	case s.count > maxChanges:
		return tooMuch("changes", maxChanges)
	}
	return nil
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
	q := history.Query{After: min(c.AfterRevision, math.MaxInt64-1), Before: c.BeforeRevision} // the next one exists
	if c.Since != nil {
		before, err := s.past.revisionAt(ctx, c.Since.Add(-time.Millisecond))
		if err != nil {
			return err
		}
		q.After = max(q.After, before)
	}
	if c.Namespace != "" {
		q.Namespace = &c.Namespace
	}
	if len(c.Resources) == 1 {
		resource := schema.ParseGroupResource(c.Resources[0])
		q.Resource = &history.Resource{Group: resource.Group, Name: resource.Resource}
	}
	if c.Transaction != "" {
		rows := changes.Selection{Query: q}
		known, err := rows.BetweenRowsOf(ctx, s.past.log.Store, c.Transaction)
		if err != nil || !known { // whether others have made one of that name, nobody shall know
			return apistorage.ClientError(err)
		}
		q = rows.Query
	}
	begin, _, err := s.past.begin(ctx, 0)
	if err != nil {
		return err
	}
	if q.After < begin {
		s.notes = append(s.notes, fmt.Sprintf("history begins after revision %d: what was done before is not taken back", begin))
	}
	return s.walk(ctx, q, c.matches, func(change *change) error {
		if c.AuditID != "" || c.Transaction != "" {
			e, err := change.read(ctx)
			if err != nil {
				return err
			}
			transaction, auditID := sqlstore.SplitAuditID(e.AuditID)
			if c.AuditID != "" && c.AuditID != auditID && c.AuditID != e.AuditID || c.Transaction != "" && c.Transaction != transaction {
				return nil
			}
		}
		return s.add(change)
	})
}

func (c *ChangeSelector) matches(change *history.Change) bool {
	k, written := keyOf(change), time.UnixMilli(change.WrittenAt)
	switch {
	case len(c.Resources) > 0 && !slices.Contains(c.Resources, k.full()),
		c.Since != nil && written.Before(c.Since.Time),
		c.Until != nil && !written.Before(c.Until.Time),
		c.User != "" && c.User != change.User && c.User != change.ImpersonatedUser,
		c.ImpersonatedUser != "" && c.ImpersonatedUser != change.ImpersonatedUser,
		c.FieldManager != "" && c.FieldManager != change.FieldManager,
		// An undo that is run again must not take itself back.
		c.FieldManager == "" && c.AuditID == "" && c.Transaction == "" && change.FieldManager == Manager && !c.one(change):
		return false
	}
	// What controllers do follows from what others did. They will do it again, or take it back themselves.
	return c.ByWhom() || c.one(change) || !automatic(change)
}

// ByWhom reports whether the selector says by whom changes are.
func (c *ChangeSelector) ByWhom() bool {
	return c.User != "" || c.ImpersonatedUser != "" || c.FieldManager != "" || c.AuditID != "" || c.Transaction != ""
}

// one reports whether the selector is of just one change, by its revision.
func (c *ChangeSelector) one(change *history.Change) bool {
	return c.AfterRevision == change.ID-1 && c.BeforeRevision == change.ID+1
}

// Automatic reports whether a user is the server itself, kube-controller-manager, one of its controllers, or kube-scheduler.
func Automatic(name string) bool {
	switch name {
	case user.APIServerUser, user.KubeControllerManager, user.KubeScheduler, sqlstore.ExpiryAuthor:
		return true
	}
	return strings.HasPrefix(name, serviceaccount.MakeUsername("kube-system", ""))
}

// automatic reports whether a change was made by one of these or a kubelet, for itself.
func automatic(c *history.Change) bool {
	return c.ImpersonatedUser == "" && (Automatic(c.User) || strings.HasPrefix(c.User, "system:node:"))
}

// object selects the changes of one object since a moment, or its deletion.
func (s *selection) object(ctx context.Context, k key, to *Moment) error {
	if to != nil {
		return s.since(ctx, k, to)
	}
	var now, last *change // the newest change of the object that exists, and the oldest that is taken back
	begun := false        // before history does
	err := s.past.walk(ctx, k.query(), nil, func(c *change) error {
		if last == nil && c.Operation != deletion { // it exists; if an undo has made it, what was before is meant
			if now == nil {
				now = c
			}
			if c.Operation == creation {
				if c.FieldManager != Manager {
					return errEnough
				}
				now = nil
			}
			return nil
		}
		if now != nil || last != nil && c.UID != last.UID {
			return errEnough
		}
		last = c
		var err error
		if begun, _, err = c.marks(ctx); err != nil {
			return err
		}
		if err := s.add(c); err != nil || begun {
			return err
		}
		return errEnough
	})
	ending := false
	if err == nil && now != nil {
		_, ending, err = now.marks(ctx)
	}
	_, holds := k.content()
	switch {
	case err != nil:
		return err
	case ending:
		return refuse("%s is still being deleted: its finalizers, or what is in it, must go first", k)
	case now != nil:
		return refuse("%s exists: say to which moment it shall go back (spec.to; --to or --before)", k)
	case last == nil:
		return refuse("history has no %s: it never was, was deleted longer ago than history reaches, or you may not get it", k)
	case holds && begun:
		s.notes = append(s.notes, fmt.Sprintf("its deletion began before history does: some of what %s had may be missing", k))
	}
	return nil
}

// since selects all changes of an object after a moment, and of what is in it.
func (s *selection) since(ctx context.Context, k key, to *Moment) error {
	revision, err := s.past.end(ctx, to)
	if err != nil {
		return err
	}
	begin, lost, err := s.past.begin(ctx, revision)
	if err == nil && to.Time != nil {
		revision, err = s.past.revisionAt(ctx, to.Time.Time)
	}
	if err != nil {
		return err
	}
	if lost {
		return refuse("what was at revision %d was lost when the database was restored or its server failed: name another moment", revision)
	}
	if revision < begin {
		return refuse("history reaches back to revision %d: what was at %d is not known any more", begin, revision)
	}
	queries := []history.Query{k.query()}
	if content, ok := k.content(); ok {
		queries = append(queries, content)
	}
	for i, q := range queries {
		q.After = revision
		walk := s.walk
		if i == 0 { // it was asked for by its name
			walk = s.past.walk
		}
		if err := walk(ctx, q, nil, func(c *change) error {
			s.wholly[c.key()] = true
			return s.add(c)
		}); err != nil {
			return err
		}
	}
	if len(s.undone) == 0 {
		return refuse("%s has not changed since then, as far as you may know", k)
	}
	return nil
}

// refuse returns an error for a request that can't be done.
func refuse(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}
