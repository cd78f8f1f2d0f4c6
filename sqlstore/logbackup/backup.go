package logbackup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/sqube/sqube/sqlstore/inspect"
)

// Backup is the content of a place.
type Backup struct {
	place Place
	// Spans are the times that can be restored, one per generation, oldest first.
	Spans []Span
}

// Span is a period in which every moment can be restored.
type Span struct {
	From, To int64     // revisions
	Began    time.Time // when From was written
	Ended    time.Time // when To was read
	Size     int64     // bytes

	// Lost is what lacks after To, nil if the next span or new rows follow, or another database.
	Lost *Gap

	snapshot File
	chain    []segment
	beyond   []segment // after Lost
	follows  int64     // the revision up to which the place was complete when this span began, 0 if unknown
}

// Gap is the error about versions whose files are no longer in a place, though later ones are.
type Gap struct {
	place       Place
	After, UpTo int64     // revisions
	ended       time.Time // when After was read
	next        int64     // the revision from which on the place is complete again; 0 if there is none
}

func (g *Gap) Error() string {
	text := fmt.Sprintf("%s lacks the files with revisions %d to %d, from %s on, though it has later ones: put them back if they were moved away; without them, sqube restore --to-revision takes revisions up to %d",
		g.place, g.After+1, g.UpTo, inspect.Stamp(g.ended), g.After)
	if g.next > 0 {
		text += fmt.Sprintf(", and from %d on", g.next)
	}
	return text
}

// Lost returns an error about each gap, which wraps a Gap, or nil.
func (b *Backup) Lost() error { return lost(b.Spans) }

func lost(spans []Span) (err error) {
	for i := range spans {
		if gap := spans[i].Lost; gap != nil {
			err = errors.Join(err, gap)
		}
	}
	return err
}

// tries is how often to read a place whose files are merged or removed meanwhile.
const tries = 5

// Retry calls do until it returns no error, or another one than that a file is gone: whoever writes to a place may merge or remove
// files at any time. After 5 tries, it returns that error.
func Retry(do func(try int) error) (err error) {
	for try := range tries {
		if err = do(try); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// Open lists what the place holds. To read a place that is being written, call it within Retry.
func Open(ctx context.Context, place Place) (*Backup, error) {
	b, err := list(ctx, place)
	for try := 1; err == nil && b.Lost() != nil && try < tries; try++ {
		// A long list is read in parts. If files are merged meanwhile, it may lack both the merged file and some of those.
		b, err = list(ctx, place)
	}
	if err != nil {
		return nil, err
	}
	if len(b.Spans) == 0 {
		return nil, fmt.Errorf("%s holds no backup (sqube backup --follow writes one)", place)
	}
	return b, nil
}

// list lists what the place holds.
func list(ctx context.Context, place Place) (*Backup, error) {
	files, err := place.List(ctx)
	if err != nil {
		return nil, err
	}
	b := &Backup{place: place}
	for _, g := range whole(generations(files)) {
		span, err := newSpan(ctx, place, g)
		if err != nil {
			return nil, err
		}
		b.Spans = append(b.Spans, *span)
	}
	for i := range b.Spans {
		s, next := &b.Spans[i], &Span{}
		if i+1 < len(b.Spans) {
			next = &b.Spans[i+1]
		}
		switch {
		case len(s.beyond) > 0:
			s.Lost = &Gap{place, s.To, s.beyond[0].after, s.Ended, next.From}
		case next.follows > s.To:
			s.Lost = &Gap{place, s.To, next.follows, s.Ended, next.From}
		}
	}
	return b, nil
}

func firstHead(ctx context.Context, place Place, name string) (first head, err error) {
	err = readFile(ctx, place, name, func(h head) error {
		first = h
		return errEnough
	}, nil)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return first, withHint(err)
}

func newSpan(ctx context.Context, place Place, g *generation) (*Span, error) {
	first, err := firstHead(ctx, place, g.snapshot.Name)
	if err != nil {
		return nil, err
	}
	s := &Span{From: first.UpTo, To: first.UpTo, Began: time.UnixMilli(first.WrittenAt), Ended: time.UnixMilli(first.ReadAt), Size: g.snapshot.Size, snapshot: *g.snapshot, follows: first.After}
	s.chain, _, s.beyond = g.chain(first.UpTo)
	for _, part := range s.chain {
		s.Size += part.Size
		s.To = part.upTo
	}
	if len(s.chain) > 0 {
		err = s.readEnd(ctx, place)
	}
	if s.Ended.Before(s.Began) { // by a wrong clock
		s.Ended = s.Began
	}
	return s, err
}

// readEnd sets when the last file was read.
func (s *Span) readEnd(ctx context.Context, place Place) error {
	// In a merged file the last part has the newest time.
	err := readFile(ctx, place, s.chain[len(s.chain)-1].Name, func(h head) error {
		s.Ended = time.UnixMilli(h.ReadAt)
		return nil
	}, nil)
	if errors.Is(err, errDamaged) {
		err = nil // restoring it reports the error
	}
	return err
}

// readFile calls read for a file in a place.
func readFile(ctx context.Context, place Place, name string, begin func(head) error, row func(line []byte) error) error {
	from, err := place.Open(ctx, name)
	if err != nil {
		return err
	}
	if err := errors.Join(read(from, begin, row), from.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Newest returns the highest revision of all spans, and the end of the last one.
func (b *Backup) Newest() (revision int64, ended time.Time) {
	for _, s := range b.Spans {
		revision = max(revision, s.To)
		ended = s.Ended
	}
	return revision, ended
}

// at returns the span that has a revision, or the newest one if that is 0.
func (b *Backup) at(revision int64) (*Span, error) {
	for i := len(b.Spans) - 1; i >= 0; i-- {
		s := &b.Spans[i]
		switch {
		case revision == 0 && s.Lost != nil:
			return nil, s.Lost
		case revision == 0 || revision >= s.From && revision <= s.To:
			return s, nil
		case revision > s.To && s.Lost != nil && (s.Lost.next == 0 || revision < s.Lost.next):
			return nil, s.Lost
		}
	}
	return nil, fmt.Errorf("%s does not hold revision %d: sqube restore --list shows what it holds", b.place, revision)
}

// before returns the index of the span from which on to look for the first row after a moment.
func (b *Backup) before(moment time.Time) (int, error) {
	for i := len(b.Spans) - 1; i >= 0; i-- {
		s := &b.Spans[i]
		switch {
		case moment.Before(s.Began):
			continue
		case moment.After(s.Ended) && s.Lost == nil && i+1 < len(b.Spans) && b.Spans[i+1].From != s.To:
			return 0, fmt.Errorf("nothing was backed up between %s (revision %d) and %s", inspect.Stamp(s.Ended), s.To, inspect.Stamp(b.Spans[i+1].Began))
		case i > 0 && b.Spans[i-1].To != s.From && b.Spans[i-1].Lost == nil:
			// The rows of a restored database keep their times, so its span may begin before the restore.
			if replaced := b.covering(moment, i); replaced >= 0 {
				return replaced, nil
			}
		}
		// If the last rows of a span were written by a slow clock, the next one seems to begin earlier than it does.
		for ; i > 0; i-- {
			before := &b.Spans[i-1]
			if before.To != b.Spans[i].From || moment.Before(before.Began) || moment.After(before.Ended) || inspect.IsFuture(before.Ended) {
				break
			}
		}
		return i, nil
	}
	return 0, fmt.Errorf("%s holds nothing as old as that: it begins at %s", b.place, inspect.Stamp(b.Spans[0].Began))
}

// continues reports whether the rows of span i+1 continue those of span i and may still be from before a moment.
func (b *Backup) continues(i int, moment time.Time) bool {
	if i+1 == len(b.Spans) || b.Spans[i+1].From != b.Spans[i].To {
		return false
	}
	began := b.Spans[i+1].Began
	return !began.After(moment) || inspect.IsFuture(began)
}

// covering returns the index of the newest of the first n spans that covers a moment, or -1.
func (b *Backup) covering(moment time.Time, n int) int {
	for i := n - 1; i >= 0; i-- {
		if s := &b.Spans[i]; !moment.Before(s.Began) && !moment.After(s.Ended) {
			return i
		}
	}
	return -1
}
