package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// A transaction gathers writes and commits them as one group, all or none:
//
//	Begin ──► Write, Get, Page with its context ──► Commit ──► committer ──► engine.CommitAll ──► hub
//
// A read with its context has what it has gathered, over the state at its begin. A write replaces what such a read has returned. Of each
// object only the last version is committed. Whether others have changed the objects meanwhile is found out by the commit alone, so an open
// transaction holds up nobody.
//
// The first row of the group is a record that says how many rows follow: see record.go. So everybody who reads the log knows which rows
// belong together.

// provisional is the first revision that versions have before they are committed. No log gets that far; see dialect.MaxRevision.
const provisional = 1 << 62

// IsProvisional reports whether a revision is that of a version that was not committed yet.
func IsProvisional(revision int64) bool { return revision > provisional }

var (
	// ErrTransactionEnded is returned for a write with the context of a transaction that has ended.
	ErrTransactionEnded = errors.New("the transaction has ended")
	// ErrTransactionTooLarge is returned for a write that a transaction has no room for.
	ErrTransactionTooLarge = errors.New("the transaction is too large")
)

// TransactionLimits bound a transaction.
type TransactionLimits struct {
	Objects int   // that it writes or requires
	Bytes   int64 // of their values, as stored
}

// Transaction is an open transaction. Its methods are safe for concurrent use.
type Transaction struct {
	// AuditID is that of the transaction's request, and DryRun whether it will not be committed. Set both before the first write.
	AuditID string
	DryRun  bool
	// Confirmation says how it must be confirmed. It is set before the first write, too.
	Confirmation Confirmation

	life      life
	revisions atomic.Int64 // the last provisional revision that it has issued
	store     *Store
	name      string
	base      int64 // everything that it has not written is read as of this revision
	limits    TransactionLimits

	mu       sync.Mutex
	ended    bool
	objects  map[objectKey]*gathered
	order    []*gathered
	required map[objectKey]int64 // the revisions of objects that it does not write; 0 for none
	bytes    int64
}

type objectKey struct {
	resource Resource
	key      string
}

// gathered is what a transaction does to an object.
type gathered struct {
	objectKey
	before *Record        // at the begin, nil if there was none
	now    *Record        // nil if it is deleted
	put    *pending       // what makes now
	remove *dialect.Write // what deletes before: as the last thing, or because another object takes its name
}

// Begin begins a transaction that reads the newest state. Its name must be unique among the records that are kept.
func (s *Store) Begin(ctx context.Context, name string, limits TransactionLimits) (*Transaction, error) {
	at, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil { // what is held has no row that could be read at its revision
		return nil, err
	}
	if !s.awaitTail(ctx, at.Revision) && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t := &Transaction{store: s, name: name, base: at.Revision, limits: limits, objects: map[objectKey]*gathered{}, required: map[objectKey]int64{}}
	t.begin()
	return t, nil
}

type transactionKey struct{}

// WithTransaction returns a context whose reads and writes are those of a transaction, or of none if t is nil.
func WithTransaction(ctx context.Context, t *Transaction) context.Context {
	return context.WithValue(ctx, transactionKey{}, t)
}

// TransactionFrom returns the transaction of ctx, nil if it has none.
func TransactionFrom(ctx context.Context) *Transaction {
	t, _ := ctx.Value(transactionKey{}).(*Transaction)
	return t
}

type requiringKey struct{}

// WithRequired returns a context with which a transaction requires every object that it gets, or its absence, to be the same when it commits.
func WithRequired(ctx context.Context) context.Context {
	return context.WithValue(ctx, requiringKey{}, true)
}

// Joining returns a context like to, with the transaction of from, if that has one, and what from requires.
func Joining(to, from context.Context) context.Context {
	if t := TransactionFrom(from); t != nil {
		to = WithTransaction(to, t)
	}
	if requiring, _ := from.Value(requiringKey{}).(bool); requiring {
		to = WithRequired(to)
	}
	return to
}

// author returns the author in ctx as that of a row of the transaction.
func (t *Transaction) author(ctx context.Context) Author {
	a := AuthorFrom(ctx)
	a.AuditID = TransactionID(t.name, a.AuditID)
	return a
}

// Confirmation says how a transaction must be confirmed.
type Confirmation struct {
	Within        time.Duration // 0 if it need not be
	UnlessHealthy bool          // being healthy confirms it
}

// Name returns the name of the transaction.
func (t *Transaction) Name() string { return t.name }

// Base returns the revision that the transaction began at.
func (t *Transaction) Base() int64 { return t.base }

// End ends the transaction. What was not committed is dropped.
func (t *Transaction) End() {
	openTransactions.Delete(t.revisions.Load() >> blockBits)
	t.mu.Lock()
	t.ended, t.objects, t.order = true, nil, nil
	t.mu.Unlock()
	t.life.end()
}

// write gathers w. It returns ErrConflict if w.Previous is not what the transaction reads.
func (t *Transaction) write(ctx context.Context, w *Write) (revision int64, err error) {
	k := objectKey{w.Resource, w.Key}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return 0, ErrTransactionEnded
	}
	g := t.objects[k]
	if g == nil {
		g = &gathered{objectKey: k, before: w.Previous}
		if w.Previous == nil {
			if g.before, err = t.at(ctx, k); err != nil {
				return 0, err
			}
		}
		g.now = g.before
	}
	if g.now != w.Previous && (g.now == nil || w.Previous == nil || g.now.Revision != w.Previous.Revision) {
		return 0, ErrConflict
	}
	growth := int64(len(w.Value))
	if g.put != nil {
		growth -= int64(len(g.put.row.Value))
	}
	known := t.objects[k] != nil
	if !known {
		if err := t.hasRoom(); err != nil {
			return 0, err
		}
	}
	if t.bytes+growth > t.limits.Bytes {
		return 0, fmt.Errorf("%w: its objects have more than %d MiB", ErrTransactionTooLarge, t.limits.Bytes>>20)
	}
	if !known {
		t.objects[k] = g
		t.order = append(t.order, g)
	}
	t.bytes += growth
	revision = t.revisions.Add(1)
	g.apply(w, t.author(ctx), revision)
	return revision, nil
}

// hasRoom returns an error if there is no room for another object.
func (t *Transaction) hasRoom() error {
	if len(t.order)+len(t.required) >= t.limits.Objects {
		return fmt.Errorf("%w: it has more than %d objects", ErrTransactionTooLarge, t.limits.Objects)
	}
	return nil
}

// apply makes a write of w the last one to the object.
func (g *gathered) apply(w *Write, author Author, revision int64) {
	row := w.row(author)
	row.Heartbeat = false
	if w.Operation == dialect.Delete {
		g.now, g.put = nil, nil
		if g.before != nil && g.remove == nil {
			row.Replaces = g.before.Revision
			g.remove = &row
		}
		return
	}
	g.now = &Record{Revision: revision, Key: w.Key, Labels: w.Labels, Fields: w.Fields, Value: w.Value, Note: w.Note}
	row.Operation, row.Replaces = dialect.Create, 0
	if g.before != nil && g.remove == nil {
		row.Operation, row.Replaces = dialect.Update, g.before.Revision
	}
	g.put = &pending{row: row, note: w.Note}
}

// at returns what was at a key when the transaction began.
func (t *Transaction) at(ctx context.Context, k objectKey) (*Record, error) {
	page, err := t.store.Page(WithTransaction(ctx, nil), Query{Resource: k.resource, Exactly: &k.key, Revision: t.base})
	if err != nil || len(page.Records) == 0 {
		return nil, err
	}
	return page.Records[0], nil
}

// get is Store.Get for the transaction.
func (t *Transaction) get(ctx context.Context, resource Resource, key string) (*Record, dialect.Position, error) {
	k, at := objectKey{resource, key}, dialect.Position{Revision: t.base}
	t.mu.Lock()
	g := t.objects[k]
	if g != nil {
		defer t.mu.Unlock()
		return g.now, at, nil
	}
	t.mu.Unlock()
	r, err := t.at(ctx, k)
	if requiring, _ := ctx.Value(requiringKey{}).(bool); requiring && err == nil {
		err = t.require(k, r)
	}
	return r, at, err
}

// require requires an object to be as it is, nil if it must not exist.
func (t *Transaction) require(k objectKey, r *Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.required[k]; !known {
		if err := t.hasRoom(); err != nil {
			return err
		}
	}
	t.required[k] = 0
	if r != nil {
		t.required[k] = r.Revision
	}
	return nil
}

// Require has the commit fail unless an object still has that revision then. It need not have been there when the transaction began.
func (t *Transaction) Require(resource Resource, key string, revision int64) error {
	return t.require(objectKey{resource, key}, &Record{Revision: revision})
}

// reads reports whether a query reads the state of the transaction, not one that its caller has named.
func (t *Transaction) reads(q Query) bool { return q.Revision == 0 || q.Revision == t.base }

// page is Store.Page for the transaction.
func (t *Transaction) page(ctx context.Context, q Query) (Page, error) {
	q.Revision = t.base
	page, err := t.store.Page(WithTransaction(ctx, nil), q)
	if err != nil {
		return page, err
	}
	page.Revision = t.base
	end := ""
	if page.More && len(page.Records) > 0 {
		end = page.Records[len(page.Records)-1].Key
	}
	changed := t.selected(q)
	if len(changed) == 0 {
		return page, nil
	}
	records := make([]*Record, 0, len(page.Records)+len(changed))
	for _, r := range page.Records {
		if _, replaced := changed[r.Key]; !replaced {
			records = append(records, r)
		}
	}
	for key, g := range changed {
		if g.now != nil && passesAll(q.Terms, g.now) && (end == "" || key <= end) {
			records = append(records, g.now)
		}
	}
	slices.SortFunc(records, func(a, b *Record) int { return cmp.Compare(a.Key, b.Key) })
	if q.Limit > 0 && len(records) > q.Limit {
		records, page.More = records[:q.Limit], true
	}
	if page.More && len(records) == 0 { // the next page begins where this one has ended
		q.After, q.From = end, ""
		return t.page(ctx, q)
	}
	page.Records = records
	return page, nil
}

// replacement is an object at the begin of a transaction and now, nil if there was or is none.
type replacement struct{ before, now *Record }

// selected returns the objects that the transaction has changed among those that q selects, with or without its terms, by key.
func (t *Transaction) selected(q Query) map[string]replacement {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := map[string]replacement{}
	for k, g := range t.objects {
		if k.resource == q.Resource && q.covers(k.key) {
			found[k.key] = replacement{g.before, g.now}
		}
	}
	return found
}

// covers reports whether a key is among those of q.
func (q *Query) covers(key string) bool {
	if q.Exactly != nil && key != *q.Exactly || q.Prefix != "" && (key < q.Prefix || key >= prefixEnd(q.Prefix)) {
		return false
	}
	return key >= q.From && (q.After == "" || key > q.After)
}

// count is Store.Count for the transaction.
func (t *Transaction) count(ctx context.Context, q Query) (int64, error) {
	limit := q.Limit
	q.Revision, q.Limit = t.base, 0
	changed := t.selected(q)
	if limit > 0 {
		q.Limit = limit + len(changed)
	}
	n, err := t.store.Count(WithTransaction(ctx, nil), q)
	for _, g := range changed {
		if g.before != nil && passesAll(q.Terms, g.before) {
			n--
		}
		if g.now != nil && passesAll(q.Terms, g.now) {
			n++
		}
	}
	if limit > 0 {
		n = min(n, int64(limit))
	}
	return n, err
}

// Gathered is a write that a transaction is going to commit.
type Gathered struct {
	Operation dialect.Operation
	Resource  Resource
	Namespace string
	Name      string
	UID       string
}

// Commit commits what the transaction has gathered, with a record of it under its name: describe returns its value for the writes in their
// order. It returns the revision of the record, which those of the writes follow without a gap.
//
// It returns ErrConflict if an object that the transaction writes or requires has changed since its begin, or if there is a record with its
// name. After other errors, the transaction may have taken effect, as a write may. It can be tried only once.
func (t *Transaction) Commit(ctx context.Context, expiresAt int64, describe func([]Gathered) ([]byte, error)) (first int64, err error) {
	began := time.Now()
	rows, required, err := t.end()
	if err != nil {
		return 0, err
	}
	writes := make([]Gathered, len(rows))
	for i, p := range rows {
		w := &p.row
		writes[i] = Gathered{w.Operation, p.resource(), w.Namespace, w.Name, w.UID}
	}
	value, err := describe(writes)
	if err != nil {
		return 0, err
	}
	record := recordOf(t.name, len(rows), expiresAt, value)
	head := &pending{row: record.row(t.author(ctx)), result: make(chan outcome, 1)}
	whole := &whole{rows: append([]*pending{head}, rows...), required: required}
	first, err = t.store.writeWhole(ctx, whole)
	switch {
	case err == nil:
		t.life.became(Committed)
	case errors.Is(err, ErrConflict):
		t.life.became(Conflicted)
	case MayHaveHappened(err):
		t.life.became(Unknown)
	}
	failure := t.store.noteFailure(ctx, err)
	for _, w := range writes {
		t.store.opts.OnRequest(string(w.Operation), w.Resource, began, failure)
	}
	return first, err
}

// end ends the transaction and returns what it writes and requires.
func (t *Transaction) end() (rows []*pending, required []dialect.Required, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, nil, ErrTransactionEnded
	}
	t.ended = true
	for _, g := range t.order {
		if g.remove != nil {
			rows = append(rows, &pending{row: *g.remove, previous: g.before})
		}
		if g.put != nil {
			if g.put.row.Operation == dialect.Update {
				g.put.previous = g.before
			}
			rows = append(rows, g.put)
		}
		if g.remove == nil && g.put == nil { // it has created and deleted an object that there was not
			required = append(required, dialect.Required{Group: g.resource.Group, Resource: g.resource.Name, Key: g.key})
		}
	}
	for k, id := range t.required {
		if g := t.objects[k]; g == nil { // else the write requires it
			required = append(required, dialect.Required{Group: k.resource.Group, Resource: k.resource.Name, Key: k.key, ID: id})
		}
	}
	if len(rows) >= history.MaxTransactionRows { // its record would not be found
		return nil, nil, fmt.Errorf("%w: it writes %d rows", ErrTransactionTooLarge, len(rows))
	}
	return rows, required, nil
}

// whole is a group of writes that are committed all or not at all. The first one gets the result.
type whole struct {
	rows     []*pending
	required []dialect.Required
}

// writeWhole commits w and returns the revision of its first row.
func (s *Store) writeWhole(ctx context.Context, w *whole) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	w.rows[0].whole = w
	return s.enqueued(ctx, w.rows[0])
}
