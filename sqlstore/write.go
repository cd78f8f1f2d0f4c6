package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sqube/sqube/dialect"
)

// ErrConflict says that the version to be replaced is not the current one, or
// that the object to be created exists.
var ErrConflict = errors.New("the object has changed")

// Write is one change to one object.
type Write struct {
	Operation dialect.Operation
	Resource  Resource
	Key       string
	Namespace string
	Name      string
	UID       string
	// Previous is the version to be replaced, as a read returned it; nil to
	// create. The write fails with ErrConflict if it is no longer current.
	Previous *Record
	// ExpiresAt is when the object shall vanish, in Unix milliseconds, 0 for
	// never.
	ExpiresAt      int64
	Labels, Fields string
	Value          []byte
	// Note is what the writer knows of Value, for readers in this process. It is
	// not stored.
	Note uint64
}

type pending struct {
	row      dialect.Write
	note     uint64
	previous *Record
	span     trace.Span   // that of the request, nil if it is not recorded
	result   chan outcome // holds one
}

type outcome struct {
	revision int64
	err      error
}

// Limits of one group. The second keeps a group of large objects from holding
// up the small ones behind it.
const (
	maxGroupWrites = 256
	maxGroupBytes  = 4 << 20
)

// Write commits w and returns its revision. When it returns no error the
// write is durable. It returns ErrConflict when w.Previous is not current, the
// error of ctx when that, or the time for a write, ends first, and errors of the
// engine (see dialect.Engine); in both latter cases the write may yet take effect.
func (s *Store) Write(ctx context.Context, w *Write) (int64, error) {
	began := time.Now()
	revision, err := s.write(ctx, w)
	switch {
	case err == nil, errors.Is(err, ErrConflict):
		s.opts.OnWrite(time.Since(began))
	case ctx.Err() == nil:
		s.failures.seen.Add(1)
	}
	return revision, err
}

func (s *Store) write(ctx context.Context, w *Write) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	p := &pending{row: w.row(AuthorFrom(ctx), s.opts.Now()), note: w.Note, previous: w.Previous, result: make(chan outcome, 1)}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		p.span = span
	}
	if err := s.enqueue(ctx, p); err != nil {
		return 0, err
	}
	select {
	case out := <-p.result:
		return out.revision, out.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// row returns w as engines take it.
func (w *Write) row(author Author, at time.Time) dialect.Write {
	row := dialect.Write{
		Operation: w.Operation, Group: w.Resource.Group, Resource: w.Resource.Name,
		Key: w.Key, Namespace: w.Namespace, Name: w.Name, UID: w.UID,
		WrittenAt: at.UnixMilli(), ExpiresAt: w.ExpiresAt,
		User: plain(author.User), FieldManager: plain(author.FieldManager),
		Labels: w.Labels, Fields: w.Fields, Value: w.Value,
	}
	if w.Previous != nil {
		row.Replaces = w.Previous.Revision
	}
	return row
}

// LogRow returns the live row that w would become in the log under an id.
func (w *Write) LogRow(id int64, author Author, at time.Time) *dialect.LogRow {
	return &dialect.LogRow{ID: id, Write: w.row(author, at)}
}

// plain returns text without what Postgres does not store.
func plain(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
}

func (s *Store) enqueue(ctx context.Context, p *pending) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return ErrClosed
	}
	select {
	case s.queue <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// commit is the committer: it takes all writes that wait, commits them as one
// group, hands them to the hub and only then answers them.
//
//	wait for one ──► take what else waits ──► commit ──► hub ──► answer
//	     ▲                                                         │
//	     └─────────────────────────────────────────────────────────┘
//
// While a group commits the next one gathers, so the more load there is the
// larger the groups become.
func (s *Store) commit() {
	for first := range s.queue {
		group := s.gather(first)
		s.committing.Store(true)
		s.commitGroup(group)
		s.committing.Store(false)
		if s.heard.Load() > s.hub.at() {
			s.hub.wakeTail()
		}
	}
}

func (s *Store) commitGroup(group []*pending) {
	rows := make([]dialect.Write, len(group))
	for i, p := range group {
		rows[i] = p.row
	}
	ctx, cancel := s.bounded(context.Background())
	ctx, span := s.commitSpan(ctx, group)
	began := time.Now()
	committed, err := s.engine.Commit(ctx, rows)
	endSpan(span, err)
	cancel()
	s.failures.contact(began, err)
	switch {
	case err == nil:
		s.opts.OnGroup(len(group))
		if s.failing {
			s.failing = false
			s.opts.Log.Info("writing to the database works again")
		}
		s.publish(group, committed)
		for i, p := range group {
			if committed.Landed[i] {
				p.result <- outcome{revision: committed.Revision(i)}
			} else {
				p.result <- outcome{err: ErrConflict}
			}
		}
	case len(group) > 1 && refused(err):
		// One of them is to blame. The others shall not fail with it.
		for i := range group {
			s.commitGroup(group[i : i+1])
		}
	default:
		switch {
		case refused(err):
			s.failures.refused(err)
		case !s.failing:
			s.failing = true
			s.opts.Log.Error("writing to the database fails; clients are told to try again", "error", err)
		}
		// The rows may be there all the same; the tail will find out.
		s.ambiguous.Add(1)
		s.hub.wakeTail()
		for _, p := range group {
			p.result <- outcome{err: err}
		}
	}
}

// refused says whether err is that of a group which the database does not take
// as it is, rather than of a database that takes none.
func refused(err error) bool {
	return !errors.Is(err, dialect.ErrUnavailable) && !errors.Is(err, dialect.ErrCorrupt) &&
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// gather takes, behind first, the writes that are waiting, and puts them in
// the order that engines want. None of them has been answered, so any order is
// one in which they may have come.
func (s *Store) gather(first *pending) []*pending {
	group := s.drain(first)
	slices.SortStableFunc(group, func(a, b *pending) int { return cmp.Compare(min(b.row.Replaces, 1), min(a.row.Replaces, 1)) })
	return group
}

func (s *Store) drain(first *pending) []*pending {
	group := []*pending{first}
	bytes := len(first.row.Value)
	for len(group) < maxGroupWrites && bytes < maxGroupBytes {
		select {
		case p, ok := <-s.queue:
			if !ok {
				return group
			}
			group = append(group, p)
			bytes += len(p.row.Value)
		default:
			return group
		}
	}
	return group
}

// publish hands what a group wrote to the hub, so that the rows need not be
// read back.
func (s *Store) publish(group []*pending, committed dialect.Committed) {
	var changes []*Change
	for i, p := range group {
		if !committed.Landed[i] {
			continue
		}
		record := Record{Revision: committed.Revision(i), Key: p.row.Key}
		if p.row.Operation != dialect.Delete {
			record.Labels, record.Fields, record.Value, record.Note = p.row.Labels, p.row.Fields, p.row.Value, p.note
		}
		changes = append(changes, &Change{
			Resource:  Resource{Group: p.row.Group, Name: p.row.Resource},
			Operation: p.row.Operation,
			Record:    record,
			Previous:  p.previous,
		})
	}
	s.hub.offer(committed.Before(), committed.Last, changes)
}
