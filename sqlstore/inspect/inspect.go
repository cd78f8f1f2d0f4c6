// Package inspect looks into a log that another process may be serving: what happened to an object, and what it was at a
// revision. It writes nothing.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// Object names an object as people do.
type Object struct {
	Resource sqlstore.Resource
	// Namespaces are those to look in; "" is that of objects that have none.
	Namespaces []string
	Name       string
}

// Version is what happened to an object at a revision.
type Version struct {
	Revision     int64
	Replaces     int64 // the revision of the version before; 0 where there was none
	Operation    dialect.Operation
	WrittenAt    time.Time
	User         string
	FieldManager string
	Key          string
	UID          string
	// Value is the stored form, nil after a deletion. Previous is that before, nil where there was none or it is no
	// longer kept.
	Value, Previous []byte
}

var (
	// ErrUnknown says that nothing is kept of an object.
	ErrUnknown = errors.New("nothing is kept of it: there is no such object, or it was deleted longer ago than --retention")
	// ErrAbsent says that an object did not exist at a revision.
	ErrAbsent = errors.New("it did not exist at that revision")
	// ErrForgotten says that it is no longer known whether or how an object was at a revision.
	ErrForgotten = errors.New("versions as old as that are no longer kept")
)

// History calls yield with every version of the object that is kept, oldest first. It returns ErrUnknown where there is
// none, errors of the database, and that of yield, which ends the walk.
func History(ctx context.Context, r dialect.Reader, o Object, yield func(*Version) error) error {
	b := newStatement(r, `SELECT l.id, l.replaces, l.operation, l.written_at, l.user_name, l.field_manager, l.key, l.uid, l.value, p.value
FROM log l LEFT JOIN log p ON p.id = l.replaces WHERE `)
	b.object("l", o)
	b.add(" ORDER BY l.id")
	known := false
	err := r.Query(ctx, b.text.String(), b.args, func(row dialect.Row) error {
		known = true
		v := &Version{}
		var operation string
		var writtenAt int64
		if err := row.Scan(&v.Revision, &v.Replaces, &operation, &writtenAt, &v.User, &v.FieldManager, &v.Key, &v.UID, &v.Value, &v.Previous); err != nil {
			return err
		}
		v.Operation, v.WrittenAt = dialect.Operation(operation), time.UnixMilli(writtenAt)
		return yield(v)
	})
	if err == nil && !known {
		err = ErrUnknown
	}
	return err
}

// At returns the object as it was at a revision, 0 for now. It returns ErrAbsent, ErrForgotten or ErrUnknown where there
// is nothing to return.
func At(ctx context.Context, r dialect.Reader, o Object, revision int64) (*Version, error) {
	at, _, err := Position(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case revision > at.Revision:
		return nil, fmt.Errorf("revision %d is in the future: the newest is %d", revision, at.Revision)
	case revision != 0 && revision < at.Compacted:
		return nil, fmt.Errorf("%w: the oldest that can be shown is %d", ErrForgotten, at.Compacted)
	}
	var found *Version
	err = History(ctx, r, o, func(v *Version) error {
		if revision == 0 || v.Revision <= revision {
			found = v
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil || found.Operation == dialect.Delete:
		return nil, ErrAbsent
	}
	return found, nil
}
