package logbackup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
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

	snapshot File
	chain    []segment
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
	b, gap, err := list(ctx, place)
	if err == nil && gap {
		// A long list is read in parts. If files are merged meanwhile, it may lack both the merged file and some of those.
		b, _, err = list(ctx, place)
	}
	if err != nil {
		return nil, err
	}
	if len(b.Spans) == 0 {
		return nil, fmt.Errorf("%s holds no backup (sqube backup --follow writes one)", place)
	}
	return b, nil
}

// list lists what the place holds, and reports whether files are missing before others.
func list(ctx context.Context, place Place) (b *Backup, gap bool, err error) {
	files, err := place.List(ctx)
	if err != nil {
		return nil, false, err
	}
	b = &Backup{place: place}
	for _, g := range whole(generations(files)) {
		span, err := newSpan(ctx, place, g)
		if err != nil {
			return nil, false, err
		}
		b.Spans = append(b.Spans, *span)
		gap = gap || len(g.segments) > 0 && g.segments[len(g.segments)-1].upTo > span.To
	}
	return b, gap, nil
}

func newSpan(ctx context.Context, place Place, g *generation) (*Span, error) {
	var first head
	err := readFile(ctx, place, g.snapshot.Name, func(h head) error {
		first = h
		return errEnough
	}, nil)
	if err != nil && !errors.Is(err, errEnough) {
		return nil, withHint(err)
	}
	s := &Span{From: first.UpTo, To: first.UpTo, Began: time.UnixMilli(first.WrittenAt), Ended: time.UnixMilli(first.ReadAt), Size: g.snapshot.Size, snapshot: *g.snapshot}
	s.chain, _ = g.chain(first.UpTo)
	for _, part := range s.chain {
		s.Size += part.Size
		s.To = part.upTo
	}
	if len(s.chain) == 0 {
		return s, nil
	}
	// In a merged file the last part has the newest time.
	err = readFile(ctx, place, s.chain[len(s.chain)-1].Name, func(h head) error {
		s.Ended = time.UnixMilli(h.ReadAt)
		return nil
	}, nil)
	if errors.Is(err, errDamaged) {
		err = nil // restoring it reports the error
	}
	return s, err
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

// at returns the span from which to restore a revision, or a time if that is not zero. If both are zero, it is the newest span.
func (b *Backup) at(revision int64, moment time.Time) (*Span, error) {
	newest := len(b.Spans) - 1
	if revision == 0 && moment.IsZero() {
		return &b.Spans[newest], nil
	}
	for i := newest; i >= 0; i-- {
		s := &b.Spans[i]
		switch {
		case revision != 0 && (revision < s.From || revision > s.To):
			continue
		case revision != 0:
			return s, nil
		case moment.Before(s.Began):
			continue
		case i < newest && moment.After(s.Ended) && b.Spans[i+1].From != s.To:
			return nil, fmt.Errorf("nothing was backed up between %s (revision %d) and %s", stamp(s.Ended), s.To, stamp(b.Spans[i+1].Began))
		case i > 0 && b.Spans[i-1].To != s.From:
			// The rows of a restored database keep their times, so its span may begin before the restore.
			if replaced := b.covering(moment, i); replaced != nil {
				return replaced, nil
			}
		}
		return s, nil
	}
	if revision != 0 {
		return nil, fmt.Errorf("%s does not hold revision %d: sqube restore --list shows what it holds", b.place, revision)
	}
	return nil, fmt.Errorf("%s holds nothing as old as that: it begins at %s", b.place, stamp(b.Spans[0].Began))
}

// covering returns the newest of the first n spans that covers a moment, or nil.
func (b *Backup) covering(moment time.Time, n int) *Span {
	for i := n - 1; i >= 0; i-- {
		if s := &b.Spans[i]; !moment.Before(s.Began) && !moment.After(s.Ended) {
			return s
		}
	}
	return nil
}

// stamp formats a time like --to-time.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
