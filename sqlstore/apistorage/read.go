package apistorage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// Get implements storage.Interface.
func (s *Storage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) (err error) {
	defer ensureReason(&err)
	ctx, span := s.span(ctx, "Get sqlstore", key)
	defer span.End()
	row, full, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	if err := s.awaitRevision(ctx, opts.ResourceVersion, 0); err != nil {
		return err
	}
	r, _, err := s.get(ctx, row)
	if err != nil {
		return err
	}
	if r == nil {
		if opts.IgnoreNotFound {
			return runtime.SetZeroValue(out)
		}
		return storage.NewKeyNotFoundError(full, 0)
	}
	if raw, ok := out.(*Raw); ok {
		return s.getRaw(ctx, r, full, raw)
	}
	return s.view(ctx, r, full, out)
}

// get reads one row. A key that no object can have, such as one that is not
// UTF-8, is not found; the database is not asked for it.
func (s *Storage) get(ctx context.Context, row string) (*sqlstore.Record, dialect.Position, error) {
	if !storable(row) {
		at, err := s.store.Position(ctx)
		return nil, at, interpret(err)
	}
	r, at, err := s.store.Get(ctx, s.resource, row)
	return r, at, interpret(err)
}

// futureRevisionTimeout is for how long a read waits for a revision that does not exist yet, as that of kube-apiserver's watch cache
// does (API concepts, "Unavailable resource versions").
const futureRevisionTimeout = 3 * time.Second

// awaitRevision waits a while until there is the resourceVersion that a read must not be older than, or the revision that it
// must be of; 0 for none.
func (s *Storage) awaitRevision(ctx context.Context, resourceVersion string, revision int64) error {
	wanted, err := s.versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	wanted = max(wanted, uint64(revision))
	if wanted == 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, futureRevisionTimeout)
	defer cancel()
	if s.store.Await(waiting, int64(min(wanted, math.MaxInt64))) == nil {
		return nil
	}
	at, err := s.store.Position(ctx)
	if err == nil && wanted > uint64(at.Revision) {
		return storage.NewTooLargeResourceVersionError(wanted, uint64(at.Revision), retryAfterSeconds)
	}
	return interpret(err)
}

// GetList implements storage.Interface.
func (s *Storage) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) (err error) {
	defer ensureReason(&err)
	request := ctx
	ctx, span := s.span(ctx, "List sqlstore", key)
	defer span.End()
	row, full, err := s.rowKey(key, opts.Recursive)
	if err != nil {
		return err
	}
	revision, start, err := storage.ValidateListOptions(full, s.versioner, opts)
	if err != nil {
		return err
	}
	if err := s.awaitRevision(ctx, opts.ResourceVersion, revision); err != nil {
		return err
	}
	w := &walk{Storage: s, opts: opts, query: sqlstore.Query{Resource: s.resource, Revision: revision}, full: full}
	if opts.Recursive {
		w.query.Prefix = row
	}
	if raw, ok := listObj.(*RawList); ok {
		err := s.listRaw(ctx, w, row, start, raw)
		raw.ctx = request // what is read later is read after the span's end
		return err
	}
	itemsPtr, err := meta.GetItemsPtr(listObj)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(itemsPtr)
	if err != nil || items.Kind() != reflect.Slice {
		return fmt.Errorf("need a pointer to a slice of items in %T: %v", listObj, err)
	}
	newItem := newItemFunc(listObj, items)
	var corrupt corruptObjects
	w.accept = func(r *sqlstore.Record) (bool, error) {
		obj := newItem()
		itemKey := s.prefix + r.Key
		if err := s.view(ctx, r, itemKey, obj); err != nil {
			return false, corrupt.add(s.GroupResource, itemKey, err)
		}
		if w.undecided(r) {
			whole := obj
			if _, partial := obj.(*metav1.PartialObjectMetadata); partial {
				whole = s.NewObject()
				if err := s.view(ctx, r, itemKey, whole); err != nil {
					return false, corrupt.add(s.GroupResource, itemKey, err)
				}
			}
			if ok, err := opts.Predicate.Matches(whole); err != nil || !ok {
				return false, nil // an object without attributes matches nothing
			}
		}
		items.Set(reflect.Append(items, reflect.ValueOf(obj).Elem()))
		return true, nil
	}
	if opts.Recursive {
		filled := func() error { return w.reservePage(ctx) }
		if _, partial := listObj.(*metav1.PartialObjectMetadataList); partial {
			filled = func() error { return nil }
		}
		err = w.collection(ctx, start, filled)
	} else {
		err = w.single(ctx, row)
	}
	if err == nil {
		err = corrupt.err(s.GroupResource)
	}
	if err != nil {
		return err
	}
	if items.IsNil() {
		items.Set(reflect.MakeSlice(items.Type(), 0, 0))
	}
	if err := s.versioner.UpdateList(listObj, uint64(w.query.Revision), w.token, w.remaining); err != nil {
		return err
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		opts.Predicate.SetShardInfoOnList(listObj)
	}
	return nil
}

// walk is one list: it reads records, page by page, and gives those that the
// selectors match to accept, until there are no more or as many as are wanted.
//
// Each page is read by one statement, at the revision of the first one, and
// taken when that has ended: neither the time that it takes to decode it nor a
// client that is slow to receive it keeps a snapshot of the database open.
type walk struct {
	*Storage
	opts storage.ListOptions
	full string // the key of the request, in full
	// query.Revision is the revision asked for, and after the first page the
	// one that is read. query.After is the key of the last record looked at.
	query sqlstore.Query
	// accept keeps a record, or returns false if it has to be left out after all.
	accept func(*sqlstore.Record) (bool, error)

	taken     int
	bytes     int    // of the values of all pages
	pageBytes int    // and of the page at hand
	more      bool   // there may be records behind query.After
	token     string // continue token
	remaining *int64
}

// collection reads the records under query.Prefix from the key start on, as
// many as are wanted, and what the list's metadata tell of them. It calls
// filled behind each page.
func (w *walk) collection(ctx context.Context, start string, filled func() error) error {
	if err := w.begin(ctx, start); err != nil {
		return err
	}
	for w.goesOn() {
		if err := w.page(ctx); err != nil {
			return err
		}
		if err := filled(); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// begin sets the walk to where the key start says: in full, "" for the first.
func (w *walk) begin(ctx context.Context, start string) error {
	if !storable(w.query.Prefix) {
		at, err := w.store.Position(ctx)
		w.query.Revision = at.Revision
		return interpret(err)
	}
	if start != "" {
		// A token names the first key wanted: mostly the last one seen and a
		// NUL, which is behind that one and before all others.
		key, behind := strings.CutSuffix(strings.TrimPrefix(start, w.prefix), "\x00")
		if !storable(key) {
			return apierrors.NewBadRequest("invalid continue token: " + storage.ErrGenericInvalidKey.Error())
		}
		if behind {
			w.query.After = key
		} else {
			w.query.From = key
		}
	}
	pred := &w.opts.Predicate
	w.query.Terms = terms(pred)
	w.more = true
	return nil
}

// goesOn says whether there is another page to be read.
func (w *walk) goesOn() bool {
	limit := w.opts.Predicate.Limit
	return w.more && (limit <= 0 || int64(w.taken) < limit)
}

// page reads the log once: as many records as are wanted, and each time twice
// as many as before while most are left out.
func (w *walk) page(ctx context.Context) error {
	limit := w.opts.Predicate.Limit
	if limit > 0 {
		w.query.Limit = int(min(max(limit-int64(w.taken), 2*int64(w.query.Limit)), sqlstore.PageRecords))
	}
	page, err := w.store.Page(ctx, w.query)
	if errors.Is(err, sqlstore.ErrCompacted) {
		return w.expired()
	}
	if err != nil {
		return interpret(err)
	}
	if w.query.Revision == 0 {
		w.query.Revision = page.Revision
	}
	w.more, w.pageBytes = page.More, 0
	for _, r := range page.Records {
		if limit > 0 && int64(w.taken) == limit {
			w.more = true
			break
		}
		if err := ctx.Err(); err != nil {
			return interpret(err)
		}
		w.query.After = r.Key
		w.pageBytes += len(r.Value)
		if !w.decided(r) {
			continue
		}
		ok, err := w.accept(r)
		if err != nil {
			return err
		}
		if ok {
			w.taken++
		}
	}
	return nil
}

// finish makes the continue token and counts what is left, where the walk has
// ended because it has as many records as are wanted. With a selector it makes
// one if there are more objects of any kind, as kube-apiserver does.
func (w *walk) finish(ctx context.Context) error {
	pred := &w.opts.Predicate
	if pred.Limit <= 0 || int64(w.taken) < pred.Limit {
		return nil
	}
	rest := sqlstore.Query{Resource: w.resource, Prefix: w.query.Prefix, Revision: w.query.Revision, After: w.query.After}
	if !pred.Empty() {
		rest.Limit = 1
	}
	n, err := w.store.Count(ctx, rest)
	if err != nil || n == 0 {
		return interpret(err)
	}
	// Only a list without selectors tells how much is left (API concepts,
	// "Retrieving large results sets in chunks").
	if pred.Empty() {
		w.remaining = &n
	}
	w.token, err = storage.EncodeContinue(w.prefix+w.query.After+"\x00", w.full, w.query.Revision)
	return err
}

// single lists the one object at key.
func (w *walk) single(ctx context.Context, key string) error {
	r, at, err := w.get(ctx, key)
	if err != nil {
		return err
	}
	if w.query.Revision > 0 {
		if r, at, err = w.getAt(ctx, key, w.query.Revision); err != nil {
			return err
		}
	}
	if r != nil && w.decided(r) {
		if _, err := w.accept(r); err != nil {
			return err
		}
	}
	if w.query.Revision == 0 {
		w.query.Revision = at.Revision
	}
	return nil
}

// getAt reads the record at key as it was at revision.
func (w *walk) getAt(ctx context.Context, key string, revision int64) (found *sqlstore.Record, at dialect.Position, err error) {
	if !storable(key) {
		return nil, at, nil
	}
	page, err := w.store.Page(ctx, sqlstore.Query{Resource: w.resource, Revision: revision, Exactly: &key})
	if errors.Is(err, sqlstore.ErrCompacted) {
		return nil, at, apierrors.NewResourceExpired(listExpired)
	}
	if len(page.Records) > 0 {
		found = page.Records[0]
	}
	return found, page.Position, interpret(err)
}

// decided says whether the stored sets let r pass. Where they can't tell, see
// undecided, it passes and the object decides.
func (w *walk) decided(r *sqlstore.Record) bool {
	return w.opts.Predicate.Empty() || w.undecided(r) || matches(&w.opts.Predicate, r)
}

func (w *walk) undecided(r *sqlstore.Record) bool { return undecided(&w.opts.Predicate, r) }

// undecided says whether the stored sets can't decide on a predicate: it
// selects by a field that the row lacks, as it was written before that field
// could be selected by, or by what is no label or field, or the row withholds
// all of them.
func undecided(pred *storage.SelectionPredicate, r *sqlstore.Record) bool {
	if sharded(pred) || r.Withheld() && !pred.Empty() {
		return true
	}
	if pred.Field == nil || pred.Field.Empty() {
		return false
	}
	have := r.Sets().Fields
	for _, r := range pred.Field.Requirements() {
		if !have.Has(r.Field) {
			return true
		}
	}
	return false
}

// sharded says whether a predicate selects a part of the objects by a hash.
func sharded(pred *storage.SelectionPredicate) bool {
	return pred.ShardSelector != nil && !pred.ShardSelector.Empty()
}

// matches says whether the stored sets of a row match a predicate.
func matches(pred *storage.SelectionPredicate, r *sqlstore.Record) bool {
	sets := r.Sets()
	return pred.Label.Matches(sets.Labels) && (pred.Field == nil || pred.Field.Matches(sets.Fields))
}

// terms returns the terms that hold for every object that a predicate matches.
func terms(pred *storage.SelectionPredicate) []sqlstore.Term {
	return append(sqlstore.LabelTerms(pred.Label), sqlstore.FieldTerms(pred.Field)...)
}

// newItemFunc returns what makes an item of a list to decode into. Items of
// an unstructured list keep its group and version.
func newItemFunc(listObj runtime.Object, items reflect.Value) func() runtime.Object {
	if list, ok := listObj.(*unstructured.UnstructuredList); ok {
		if apiVersion := list.GetAPIVersion(); apiVersion != "" {
			return func() runtime.Object {
				return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion}}
			}
		}
	}
	item := items.Type().Elem()
	return func() runtime.Object { return reflect.New(item).Interface().(runtime.Object) }
}
