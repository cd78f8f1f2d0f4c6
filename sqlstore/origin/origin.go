// Package origin finds the state that a database or a backup had at a moment, and fills a new database with it.
package origin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

// At selects a state: by its revision or by a time. The zero value is the newest.
type At struct {
	Revision int64
	Time     time.Time
}

// Find returns the revision of a state of a database, and what the database keeps. A revision within a transaction stands for its end. moment
// is nil without a time. It returns an error that wraps inspect.ErrForgotten for a time whose state is no longer kept.
func Find(ctx context.Context, r dialect.Reader, at At) (revision int64, kept inspect.Kept, moment *inspect.Moment, err error) {
	kept, err = inspect.Read(ctx, r)
	switch {
	case err != nil:
	case !at.Time.IsZero():
		if moment, err = inspect.RevisionAt(ctx, r, at.Time); err == nil {
			revision = moment.Revision
		}
	case at.Revision == 0:
		revision = kept.Revision
	case at.Revision < kept.From || at.Revision > kept.Revision:
		err = fmt.Errorf("revision %d must be between %d and %d, which are kept", at.Revision, kept.From, kept.Revision)
	default:
		revision, err = history.WholeTransaction(ctx, r, at.Revision)
	}
	return revision, kept, moment, err
}

// Fetch copies the needed files of a backup to an empty folder; see logbackup.Backup.Fetch.
func Fetch(ctx context.Context, place logbackup.Place, at At, before time.Duration, dir string) (backup *logbackup.Backup, state *logbackup.State, err error) {
	err = logbackup.Retry(func(try int) (err error) {
		if backup, err = logbackup.Open(ctx, place); err == nil {
			state, err = backup.Fetch(ctx, at.Revision, at.Time, before, fmt.Sprintf("%s/%d", dir, try))
		}
		return err
	})
	return backup, state, err
}

// IsFollowed reports whether the source is a backup of sqube backup --follow, or an archive.
func IsFollowed(source string) bool {
	if strings.HasPrefix(source, "s3://") {
		return true
	}
	info, err := os.Stat(source)
	return err == nil && info.IsDir()
}

// IsPgDump reports whether a file is an archive of pg_dump.
func IsPgDump(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	magic := make([]byte, 5)
	if _, err := io.ReadFull(f, magic); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(magic, []byte("PGDMP")), nil
}

// ErrPgDump is returned for an archive of pg_dump, which only Postgres can read.
var ErrPgDump = errors.New("it is an archive of pg_dump: sqube restore it to a database, and use that")

// Copy fills an empty database with the objects that a source had at a moment, without their history and without held Leases. Revisions
// continue from there. open opens a source that is a database. It returns when the newest object was written, or the time of at.
func Copy(ctx context.Context, to dialect.Engine, from string, at At, open func(context.Context) (dialect.Reader, error)) (moment time.Time, err error) {
	if !IsFollowed(from) {
		reader, err := open(ctx)
		if err != nil {
			return moment, err
		}
		defer func() { err = errors.Join(err, reader.Close()) }()
		revision, _, _, err := Find(ctx, reader, at)
		if err != nil {
			return moment, err
		}
		return Fill(ctx, to, revision, at, func(yield func(*dialect.LogRow) error) error {
			return inspect.Snapshot(ctx, reader, revision, yield)
		})
	}
	place, err := logbackup.ParsePlace(from)
	if err != nil {
		return moment, err
	}
	dir, err := os.MkdirTemp("", "sqube-copy-")
	if err != nil {
		return moment, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	_, state, err := Fetch(ctx, place, at, 0, dir)
	if err != nil {
		return moment, err
	}
	return Fill(ctx, to, state.Revision, at, func(yield func(*dialect.LogRow) error) error { return state.Rows(ctx, yield) })
}

// held reports whether a row is a Lease, or a candidate for one, except those of nodes. Its holder, a controller or an API server, is not there
// any more, but others would wait until it has not been renewed for as long as it lasts.
func held(row *dialect.LogRow) bool {
	return row.Group == "coordination.k8s.io" && row.Namespace != "kube-node-lease"
}

// Fill fills an empty database with the objects of rows, without held Leases. Revisions continue from revision. It returns when the newest
// object was written, or the time of at.
func Fill(ctx context.Context, to dialect.Engine, revision int64, at At, rows func(yield func(*dialect.LogRow) error) error) (time.Time, error) {
	newest := int64(0)
	err := to.Load(ctx, dialect.Position{Revision: revision, Compacted: revision}, func(add func(*dialect.LogRow) error) error {
		return rows(func(row *dialect.LogRow) error {
			newest = max(newest, row.WrittenAt)
			if held(row) {
				return nil
			}
			return add(row)
		})
	}, nil)
	if !at.Time.IsZero() {
		return at.Time, err
	}
	return time.UnixMilli(newest), err
}
