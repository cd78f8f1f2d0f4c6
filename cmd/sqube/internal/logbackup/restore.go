package logbackup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sqube/sqube/dialect"
)

// State is the log at a revision: local, verified copies of the files of a backup.
type State struct {
	Revision int64

	files folder
	names []string       // the snapshot, then the segments
	gone  map[int64]bool // the rows that were replaced by that revision
}

// change is the part of a row that is kept in memory.
type change struct {
	id, replaces, writtenAt int64
}

// atOnce is how many files are fetched concurrently.
const atOnce = 8

// Fetch copies the files for a revision to an empty folder, and verifies them. If revision is 0, it is the newest revision at a moment, or
// at all if moment is the zero time.
func (b *Backup) Fetch(ctx context.Context, revision int64, moment time.Time, to string) (*State, error) {
	span, err := b.at(revision, moment)
	if err != nil {
		return nil, err
	}
	s := &State{Revision: revision, files: folder(to)}
	files := span.files(revision)
	fetching, bounded := errgroup.WithContext(ctx)
	fetching.SetLimit(atOnce)
	for _, file := range files {
		s.names = append(s.names, path.Base(file.Name))
		fetching.Go(func() error { return s.fetch(bounded, b.place, file.Name) })
	}
	if err := fetching.Wait(); err != nil {
		return nil, err
	}
	changes, err := s.scan(ctx, span.From)
	if err != nil {
		return nil, err
	}
	if revision == 0 {
		s.Revision = span.To
	}
	if !moment.IsZero() {
		s.Revision = span.From
		for _, c := range changes {
			if c.writtenAt <= moment.UnixMilli() {
				s.Revision = max(s.Revision, c.id)
			}
		}
	}
	s.gone = map[int64]bool{}
	for _, c := range changes {
		if c.id <= s.Revision {
			s.gone[c.replaces] = true
		}
	}
	return s, nil
}

// fetch copies a file.
func (s *State) fetch(ctx context.Context, place Place, name string) error {
	return s.files.Put(ctx, path.Base(name), func(to io.Writer) error { return copyFile(ctx, to, place, name) })
}

// copyFile writes the content of a file in a place.
func copyFile(ctx context.Context, to io.Writer, place Place, name string) error {
	from, err := place.Open(ctx, name)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, from.Close())
}

// scan reads all files and returns the changes after a revision.
func (s *State) scan(ctx context.Context, from int64) (changes []change, err error) {
	err = s.walk(ctx, func(row *dialect.LogRow) error {
		if row.ID > from {
			changes = append(changes, change{row.ID, row.Replaces, row.WrittenAt})
			from = row.ID
		}
		return nil
	})
	return changes, err
}

// walk calls row with each row of the files.
func (s *State) walk(ctx context.Context, row func(*dialect.LogRow) error) error {
	upTo := int64(0)
	for _, name := range s.names {
		var last head
		err := readFile(ctx, s.files, name, func(h head) error {
			last = h
			return nil
		}, decoded(row))
		if errors.Is(err, errDamaged) && upTo > 0 {
			return fmt.Errorf("%w: the state before it can be restored with --to-revision %d", err, upTo)
		}
		if err != nil {
			return err
		}
		upTo = last.UpTo
	}
	return nil
}

// Rows calls yield with the live rows at the revision, in the order of their ids. An error of yield ends the walk and is returned.
func (s *State) Rows(ctx context.Context, yield func(*dialect.LogRow) error) error {
	last := int64(0)
	return s.walk(ctx, func(row *dialect.LogRow) error {
		if row.ID <= last || row.ID > s.Revision {
			return nil
		}
		last = row.ID
		if row.Operation == dialect.Delete || s.gone[row.ID] {
			return nil
		}
		return yield(row)
	})
}
