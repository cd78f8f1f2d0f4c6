package logbackup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// State is the log at a revision: local, verified copies of the files of a backup.
type State struct {
	Revision int64
	Moment   *inspect.Moment // whose revision it is; nil if none was given
	From     int64           // the first revision whose state the files have
	Began    time.Time       // when From was written

	files  folder
	copies []File         // the snapshot, then the segments
	gone   map[int64]bool // the rows that were replaced by that revision
}

// atOnce is how many files are fetched concurrently.
const atOnce = 8

// revisionAt returns the revision of the log at a moment, and the span that has it. It returns a Gap if the files for it are gone.
func (b *Backup) revisionAt(ctx context.Context, moment time.Time) (m *inspect.Moment, in *Span, err error) {
	i, err := b.before(moment)
	if err != nil {
		return nil, nil, err
	}
	m, in = inspect.NewMoment(moment), &b.Spans[i]
	m.Revision, m.Latest = in.From, in.From
	for last := m.Revision; ; i++ {
		s := &b.Spans[i]
		err := walk(ctx, b.place, s.files(0)[1:], s.From, func(row *dialect.LogRow) error {
			if row.ID > last {
				last = row.ID
				m.Row(row.ID, row.WrittenAt)
			}
			return nil
		})
		switch {
		case err != nil:
			return nil, nil, err
		case !m.Passed && s.Lost != nil:
			return nil, nil, s.Lost
		}
		if m.Revision > s.From {
			in = s
		}
		if m.Passed || !b.continues(i, moment) {
			return m, in, nil
		}
	}
}

// Fetch copies the files for a revision to an empty folder, and verifies them, with those that have all versions of a time before it, as far
// as they are whole. If revision is 0, it is that at a moment, or the newest one if moment is the zero time. One within a transaction
// stands for its end. It returns a Gap if files for it are gone.
func (b *Backup) Fetch(ctx context.Context, revision int64, moment time.Time, before time.Duration, to string) (s *State, err error) {
	s = &State{files: folder(to)}
	var span *Span
	if moment.IsZero() {
		span, err = b.at(revision)
	} else if s.Moment, span, err = b.revisionAt(ctx, moment); err == nil {
		revision = s.Moment.Revision
	}
	if err != nil {
		return nil, err
	}
	s.Revision = cmp.Or(revision, span.To)
	for _, first := range []*Span{b.earlier(span, before), span} {
		s.From, s.Began = first.From, first.Began
		if err = s.fetchAll(ctx, b.place, b.filesFrom(first, span, revision)); !errors.Is(err, errDamaged) {
			break
		}
	}
	return s, err
}

// earlier returns the first span that has versions of a time before the end of one, if all between are there.
func (b *Backup) earlier(span *Span, before time.Duration) *Span {
	i := len(b.Spans) - 1
	for &b.Spans[i] != span {
		i--
	}
	for i > 0 && b.Spans[i].Began.After(span.Ended.Add(-before)) && b.Spans[i-1].To == b.Spans[i].From && b.Spans[i-1].Lost == nil {
		i--
	}
	return &b.Spans[i]
}

// filesFrom returns the files with all versions from the begin of a span up to a revision in the same or a later one; 0 for all.
func (b *Backup) filesFrom(first, last *Span, revision int64) []File {
	files := []File{first.snapshot}
	for i := range b.Spans {
		if s := &b.Spans[i]; s.From >= first.From && s.From < last.From {
			files = append(files, s.files(0)[1:]...)
		}
	}
	return append(files, last.files(revision)[1:]...)
}

// fetchAll copies files that continue each other, and notes which rows are replaced.
func (s *State) fetchAll(ctx context.Context, place Place, files []File) error {
	s.copies, s.gone = nil, map[int64]bool{}
	fetching, bounded := errgroup.WithContext(ctx)
	fetching.SetLimit(atOnce)
	for _, file := range files {
		s.copies = append(s.copies, File{Name: path.Base(file.Name)})
		fetching.Go(func() error { return s.fetch(bounded, place, file.Name) })
	}
	if err := fetching.Wait(); err != nil {
		return err
	}
	last := s.From
	return walk(ctx, s.files, s.copies, 0, func(row *dialect.LogRow) error {
		if row.ID > last && row.ID <= s.Revision {
			last = row.ID
			s.gone[row.Replaces] = true
			s.Revision = max(s.Revision, history.TransactionEnd(row))
		}
		return nil
	})
}

func (s *State) fetch(ctx context.Context, place Place, name string) error {
	return s.files.Put(ctx, path.Base(name), func(to io.Writer) error { return copyFile(ctx, to, place, name) })
}

func copyFile(ctx context.Context, to io.Writer, place Place, name string) error {
	from, err := place.Open(ctx, name)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, from.Close())
}

// walk calls row with each row of files that continue each other. There is a state at revision upTo before them, 0 for none.
func walk(ctx context.Context, place Place, files []File, upTo int64, row func(*dialect.LogRow) error) error {
	for _, file := range files {
		var last head
		err := readFile(ctx, place, file.Name, func(h head) error {
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
	return s.Versions(ctx, func(row *dialect.LogRow, live bool) error {
		if !live {
			return nil
		}
		return yield(row)
	})
}

// Versions calls yield with all rows that the files have up to the revision, in the order of their ids, and whether each is live at the
// revision. An error of yield ends the walk and is returned.
func (s *State) Versions(ctx context.Context, yield func(row *dialect.LogRow, live bool) error) error {
	last := int64(0)
	return walk(ctx, s.files, s.copies, 0, func(row *dialect.LogRow) error {
		if row.ID <= last || row.ID > s.Revision {
			return nil
		}
		last = row.ID
		return yield(row, row.Operation != dialect.Delete && !s.gone[row.ID])
	})
}
