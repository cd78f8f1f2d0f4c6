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

// ErrConflict is returned for a write whose Previous is not live, or that creates an object that exists.
var ErrConflict = dialect.ErrConflict

// ErrFull is in the error of a write for which the database's disk has no space.
var ErrFull = dialect.ErrFull

// Write is one change to one object.
type Write struct {
	Operation dialect.Operation
	Resource  Resource
	Key       string
	Namespace string
	Name      string
	UID       string
	// Previous is the version to replace, as returned by a read; nil to create. The write fails with ErrConflict if it is not
	// live.
	Previous *Record
	// ExpiresAt is when the object will be deleted, in Unix milliseconds, 0 for never.
	ExpiresAt      int64
	Labels, Fields string
	Value          []byte
	// Note is what the writer knows about Value, for readers in this process. It is not stored.
	Note uint64
	// Heartbeat allows the write to be lost if the process is killed or the machine fails; see Options.HeartbeatInterval. It is for
	// updates that change nothing but times, whose writers take a lost one for one that has failed.
	Heartbeat bool
}

type pending struct {
	row      dialect.Write
	note     uint64
	previous *Record
	span     trace.Span   // of the request, nil if it is not recorded
	result   chan outcome // buffered: one; nil for the later rows of a whole
	whole    *whole       // whose first row it is; nil for a write of its own
}

func (p *pending) resource() Resource { return Resource{Group: p.row.Group, Name: p.row.Resource} }

// change is what the write does under that revision.
func (p *pending) change(revision int64) *Change {
	record := Record{Revision: revision, Key: p.row.Key}
	if p.row.Operation != dialect.Delete {
		record.Labels, record.Fields, record.Value, record.Note = p.row.Labels, p.row.Fields, p.row.Value, p.note
	}
	return &Change{Resource: p.resource(), Operation: p.row.Operation, Record: record, Previous: p.previous}
}

type outcome struct {
	revision int64
	err      error
}

// Limits of a group commit. The second keeps large objects from delaying small ones behind them.
const (
	maxGroupWrites = 256
	maxGroupBytes  = 4 << 20
)

// Write commits w and returns its revision. Without an error, the write is durable, unless it is a heartbeat. It returns ErrConflict if
// w.Previous is not live, the error of ctx if that or the time for a write ends first, and errors of the engine (see dialect.Engine). In
// the last two cases the write may still take effect.
func (s *Store) Write(ctx context.Context, w *Write) (int64, error) {
	if t := TransactionFrom(ctx); t != nil {
		return t.write(ctx, w)
	}
	began := time.Now()
	revision, err := s.write(ctx, w)
	s.opts.OnRequest(string(w.Operation), w.Resource, began, s.noteFailure(ctx, err))
	return revision, err
}

// noteFailure counts the error of a commit, and returns it, unless it is a conflict.
func (s *Store) noteFailure(ctx context.Context, err error) error {
	if errors.Is(err, ErrConflict) {
		return nil
	}
	if err != nil && ctx.Err() == nil {
		s.failures.seen.Add(1)
	}
	return err
}

func (s *Store) write(ctx context.Context, w *Write) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	p := &pending{row: w.row(AuthorFrom(ctx)), note: w.Note, previous: w.Previous, result: make(chan outcome, 1)}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		p.span = span
	}
	return s.enqueued(ctx, p)
}

// enqueued has p committed and returns its revision.
func (s *Store) enqueued(ctx context.Context, p *pending) (int64, error) {
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

// row returns w in the form that engines need, without its time.
func (w *Write) row(author Author) dialect.Write {
	row := dialect.Write{
		Operation: w.Operation, Group: w.Resource.Group, Resource: w.Resource.Name,
		Key: w.Key, Namespace: w.Namespace, Name: w.Name, UID: w.UID,
		ExpiresAt: w.ExpiresAt, Labels: w.Labels, Fields: w.Fields, Value: w.Value,
	}
	author.sign(&row)
	if w.Previous != nil {
		row.Replaces = w.Previous.Revision
		row.Heartbeat = w.Heartbeat && w.Operation == dialect.Update && w.ExpiresAt == 0
	}
	return row
}

// LogRow returns the live row that w would become under an id.
func (w *Write) LogRow(id int64, author Author, at time.Time) *dialect.LogRow {
	row := &dialect.LogRow{ID: id, Write: w.row(author)}
	row.WrittenAt = at.UnixMilli()
	return row
}

// sign records the author of a write.
func (a *Author) sign(w *dialect.Write) {
	w.User, w.CredentialID, w.ImpersonatedUser = plain(a.User), plain(a.CredentialID), plain(a.ImpersonatedUser)
	w.FieldManager, w.Address, w.AuditID = plain(a.FieldManager), plain(a.Address), plain(a.AuditID)
}

// plain replaces what Postgres can't store as text.
func plain(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
}

func (s *Store) enqueue(ctx context.Context, p *pending) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.allowed(p); err != nil {
		return err
	}
	select {
	case s.queue <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// commit is the committer: it commits all waiting writes as one group, passes them to the hub, and then returns their results.
//
//	wait for one ──► take what else waits ──► commit ──► hub ──► answer
//	     ▲                                                         │
//	     └─────────────────────────────────────────────────────────┘
//
// While a group commits, the next one gathers, so groups grow with the load.
func (s *Store) commit() {
	defer close(s.held.ended)
	for {
		select {
		case first, open := <-s.queue:
			if !open {
				s.supersede()
				_ = s.commitHeld() // it is logged
				return
			}
			group, whole := s.gather(first)
			if len(group) > 0 && !s.hold(group) {
				s.commitNow(func() { s.commitGroup(group) })
			}
			if whole != nil {
				s.commitNow(func() { s.commitWhole(whole) })
			}
		case <-s.held.due.C:
			s.supersede()
			_ = s.commitHeld()
		case done := <-s.held.settle:
			done <- s.commitHeld()
		}
		if s.heard.Load() > s.hub.at() {
			wake(s.hub.behind)
		}
	}
}

// commitNow commits the held rows and more.
func (s *Store) commitNow(commit func()) {
	s.supersede()
	s.committing.Store(true)
	commit()
	s.committing.Store(false)
}

// commitGroup commits the held rows and a group.
func (s *Store) commitGroup(group []*pending) {
	ctx, cancel := s.bounded(context.Background())
	defer cancel()
	all, err := s.withHeld(ctx, group)
	if err != nil {
		s.fail(group, err)
		return
	}
	if len(all) == 0 {
		return
	}
	ctx, span := s.commitSpan(ctx, group)
	committed, err := s.tryCommit(all, func(rows []dialect.Write) (dialect.Committed, error) { return s.engine.Commit(ctx, rows) })
	endSpan(span, err)
	switch {
	case err == nil:
		s.publish(group, committed)
	case len(group) < len(all) && refused(err) && !errors.Is(err, dialect.ErrFull):
		s.commitApart(group, err)
	case len(group) > 1 && refused(err):
		// One of the writes is at fault. The others must not fail with it.
		for i := range group {
			s.commitGroup(group[i : i+1])
		}
	case errors.Is(err, dialect.ErrFull):
		s.full.Store(true)
		deletions, others := partition(group)
		if len(deletions) == 0 || len(others) == 0 {
			s.fail(group, err)
			return
		}
		// There may still be room for the deletions.
		s.fail(others, err)
		s.commitGroup(deletions)
	default:
		s.fail(group, err)
	}
}

// commitWhole commits a group all or not at all, after the held rows.
func (s *Store) commitWhole(w *whole) {
	if err := s.commitHeld(); err != nil {
		s.fail(w.rows[:1], err)
		return
	}
	ctx, cancel := s.bounded(context.Background())
	defer cancel()
	ctx, span := s.commitSpan(ctx, w.rows[:1])
	committed, err := s.tryCommit(w.rows, func(rows []dialect.Write) (dialect.Committed, error) {
		return s.engine.CommitAll(ctx, rows, w.required)
	})
	endSpan(span, err)
	switch {
	case err == nil:
		s.publish(w.rows, committed)
	case errors.Is(err, ErrConflict):
		w.rows[0].result <- outcome{err: ErrConflict}
	default:
		s.full.Store(s.full.Load() || errors.Is(err, dialect.ErrFull))
		s.fail(w.rows[:1], err)
	}
}

// tryCommit commits rows by commit.
func (s *Store) tryCommit(all []*pending, commit func([]dialect.Write) (dialect.Committed, error)) (dialect.Committed, error) {
	rows, at := make([]dialect.Write, len(all)), s.clock.commitTime(s.opts.Now())
	for i, p := range all {
		rows[i] = p.row
		rows[i].WrittenAt = at
	}
	began := time.Now()
	committed, err := commit(rows)
	s.failures.contact(began, err)
	wake(s.attempted)
	if err != nil {
		wake(s.expiring) // it may have taken effect
		return committed, err
	}
	s.wrote.Store(&began)
	s.opts.OnGroup(len(all))
	s.compareClock(committed.WrittenAt, s.opts.Now())
	s.succeeded(all)
	s.notified(committed.Unnotified)
	return committed, nil
}

// succeeded logs that writing works again. Deletions alone do not prove it: they may succeed on a full disk.
func (s *Store) succeeded(group []*pending) {
	if !s.failing {
		return
	}
	if _, others := partition(group); len(others) > 0 {
		s.full.Store(false)
		s.failing = false
		s.opts.Log.Info("writing to the database works again")
	}
}

// fail returns the error to a group that was not committed, or may not have been.
func (s *Store) fail(group []*pending, err error) {
	switch {
	case refused(err):
		s.failures.refused(err)
	case errors.Is(err, ErrMoved):
		s.inPlace(err)
	case !s.failing:
		s.failing = true
		s.opts.Log.Error("writing to the database failed; clients will retry", "error", err)
	}
	s.heldFailed(err)
	if !refused(err) { // the rows may still be in the log; the tail will find out
		s.ambiguous.Add(1)
		wake(s.hub.behind)
	}
	for _, p := range group {
		p.result <- outcome{err: err}
	}
}

// partition splits a group into its deletions and the other writes.
func partition(group []*pending) (deletions, others []*pending) {
	for _, p := range group {
		if p.row.Operation == dialect.Delete {
			deletions = append(deletions, p)
		} else {
			others = append(others, p)
		}
	}
	return deletions, others
}

// MayHaveHappened reports whether a write that has returned an error may have taken effect all the same, or still may.
func MayHaveHappened(err error) bool {
	return err != nil && !refused(err) && !errors.Is(err, dialect.ErrFull) && !errors.Is(err, ErrMoved)
}

// refused reports whether the database rejected this group, as opposed to being unable to commit any group.
func refused(err error) bool {
	return !errors.Is(err, dialect.ErrUnavailable) && !errors.Is(err, dialect.ErrCorrupt) &&
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// gather returns first and the waiting writes, in the order that engines need, up to the first whole, which it returns apart. None has been
// acknowledged, so any order is valid.
func (s *Store) gather(first *pending) (group []*pending, whole *whole) {
	if first.whole != nil {
		return nil, first.whole
	}
	group = []*pending{first}
	for bytes := len(first.row.Value); len(group) < maxGroupWrites && bytes < maxGroupBytes; {
		select {
		case p, ok := <-s.queue:
			if ok && p.whole == nil {
				group = append(group, p)
				bytes += len(p.row.Value)
				continue
			}
			if ok {
				whole = p.whole
			}
		default:
		}
		break
	}
	slices.SortStableFunc(group, func(a, b *pending) int { return cmp.Compare(min(b.row.Replaces, 1), min(a.row.Replaces, 1)) })
	return group, whole
}

// publish passes the rows of a group, which was committed after the held rows, to the hub, so that they need not be read back. Then it
// returns the results.
func (s *Store) publish(group []*pending, committed dialect.Committed) {
	held := len(committed.Landed) - len(group)
	if h := &s.held; held > 0 {
		if h.lost {
			s.hub.skip(committed.Last)
		} else if committed.Before()+1 != h.first || !h.landed(committed.Landed[:held]) {
			s.opts.Log.Error("heartbeats were not committed as they were published; ending all watches", "first", h.first, "committed", committed.Before()+1)
			s.hub.skip(committed.Last)
		}
		h.clear()
	}
	var changes []*Change
	for i, p := range group {
		if committed.Landed[held+i] {
			s.noteExpiry(p.row.ExpiresAt)
			c := p.change(committed.Revision(held + i))
			c.followed = group[0].whole != nil && i+1 < len(group)
			changes = append(changes, c)
			s.bounds.counted(c)
		}
	}
	s.hub.offer(committed.Before()+int64(held), committed.Last, changes)
	for i, p := range group {
		if p.result == nil {
			continue
		}
		if committed.Landed[held+i] {
			p.result <- outcome{revision: committed.Revision(held + i)}
		} else {
			p.result <- outcome{err: ErrConflict}
		}
	}
}
