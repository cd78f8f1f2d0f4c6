// Package inspect reads a log that another process may be serving: the history of an object, its state at a revision, and whether
// the log is sound. It writes nothing.
package inspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
)

// Object names an object.
type Object struct {
	Resource sqlstore.Resource
	// Namespaces are the namespaces to look in; "" is for objects that have none.
	Namespaces []string
	Name       string
}

// Version is one version of an object.
type Version struct {
	dialect.LogRow
	// Previous is the value of the previous version, nil if there was none or it is no longer kept.
	Previous []byte
	// GivenUp is set if the value is no longer kept, and Fields names what an update changed if Previous or Value is not; see history.Change.
	GivenUp bool
	Fields  *history.Fields
}

var (
	// ErrUnknown is returned for an object without any version in the log.
	ErrUnknown = errors.New("no version of it is kept: there is no such object, or it was deleted before what is kept")
	// ErrAbsent is returned for an object that did not exist at a revision.
	ErrAbsent = errors.New("it did not exist at that revision")
	// ErrForgotten is returned for a revision that is no longer kept.
	ErrForgotten = errors.New("versions that old are no longer kept")
)

// History calls yield with every version of the object that is kept, oldest first. It returns ErrUnknown if there is none,
// database errors, and an error from yield, which ends the walk.
func History(ctx context.Context, r dialect.Reader, o Object, yield func(*Version) error) error {
	known := false
	for _, namespace := range o.Namespaces {
		q := history.Query{Resource: &o.Resource, Namespace: &namespace, Name: o.Name}
		err := history.Changes(ctx, r, q, func(c *history.Change) error {
			if err := c.Load(ctx); errors.Is(err, history.ErrForgotten) {
				return nil
			} else if err != nil {
				return err
			}
			known = true
			return yield(&Version{c.LogRow, c.Previous, c.GivenUp, c.Fields})
		})
		if err != nil {
			return err
		}
	}
	if !known {
		return ErrUnknown
	}
	return nil
}

// Live calls yield with the row of every object of a resource that exists. It returns database errors and an error from yield, which ends
// the walk.
func Live(ctx context.Context, r dialect.Reader, resource sqlstore.Resource, yield func(*dialect.LogRow) error) error {
	const live = "WHERE replaced_by IS NULL AND api_group = ? AND resource = ? ORDER BY id"
	return dialect.Rows(ctx, r, live, []any{resource.Group, resource.Name}, func(row *dialect.LogRow) error {
		if row.Operation == dialect.Delete {
			return nil
		}
		return yield(row)
	})
}

// pageRows is how many rows Each reads at once.
const pageRows = 500

// Each calls yield with the row of every object that exists, ordered by resource and key. It reads a part at a time, so no read lasts as
// long as the walk: an object that changes meanwhile is seen before or after that. It returns database errors and an error from yield,
// which ends the walk.
func Each(ctx context.Context, r dialect.Reader, yield func(*dialect.LogRow) error) error {
	page := fmt.Sprintf("WHERE replaced_by IS NULL AND (api_group, resource, key) > (?, ?, ?) ORDER BY api_group, resource, key LIMIT %d", pageRows)
	last := &dialect.LogRow{}
	for rows := pageRows; rows == pageRows; {
		rows = 0
		err := dialect.Rows(ctx, r, page, []any{last.Group, last.Resource, last.Key}, func(row *dialect.LogRow) error {
			rows++
			last = row
			return yield(row)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// At returns the object at a revision, or at the end of the transaction in which that is; 0 for now. If there is none, it returns ErrAbsent,
// ErrForgotten or ErrUnknown.
func At(ctx context.Context, r dialect.Reader, o Object, revision int64) (*Version, error) {
	err := readable(ctx, r, revision)
	if err == nil && revision != 0 {
		revision, err = history.WholeTransaction(ctx, r, revision)
	}
	if err != nil {
		return nil, err
	}
	var found *Version
	err = History(ctx, r, o, func(v *Version) error {
		if revision == 0 || v.ID <= revision {
			found = v
		}
		return nil
	})
	// Versions may have been removed meanwhile. That is declared first.
	if forgotten := errors.Join(readable(ctx, r, revision), complete(ctx, r, revision, o.Resource.String())); forgotten != nil {
		return nil, forgotten
	}
	switch {
	case err != nil:
		return nil, err
	case found == nil || found.Operation == dialect.Delete:
		return nil, ErrAbsent
	case found.GivenUp:
		return nil, fmt.Errorf("%w: its values at revision %d were given up for room", ErrForgotten, found.ID)
	}
	return found, nil
}

// readable fails if a revision other than 0 is in the future or no longer kept.
func readable(ctx context.Context, r dialect.Reader, revision int64) error {
	at, err := Read(ctx, r)
	var lost bool
	if err == nil {
		err = r.Query(ctx, "SELECT "+dialect.WasLost, []any{revision, revision}, func(row dialect.Row) error { return row.Scan(&lost) })
	}
	switch {
	case err != nil:
		return err
	case lost:
		return fmt.Errorf("%w: revision %d was lost when the database was restored or failed over", ErrForgotten, revision)
	case revision > at.Revision:
		return fmt.Errorf("revision %d is in the future: the newest is %d", revision, at.Revision)
	case revision != 0 && revision < at.From:
		return fmt.Errorf("%w: the oldest that can be shown is %d", ErrForgotten, at.From)
	}
	return nil
}

// complete fails if some versions of objects of a resource, "" for any, were left out at a revision.
func complete(ctx context.Context, r dialect.Reader, revision int64, resource string) error {
	var leftOut bool
	statement, args := "SELECT "+history.WasLeftOut, []any{revision, revision}
	if resource != "" {
		statement, args = statement+" AND name = ?", append(args, resource)
	}
	err := r.Query(ctx, statement+")", args, func(row dialect.Row) error { return row.Scan(&leftOut) })
	if err == nil && leftOut {
		err = fmt.Errorf("%w: some were left out at revision %d, for room", ErrForgotten, revision)
	}
	return err
}
