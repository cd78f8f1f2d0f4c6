package undo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/fieldpath"
	"github.com/sqube/sqube/sqlstore/history"
)

// The operations of changes.
const (
	creation = "create"
	update   = "update"
	deletion = "delete"
)

// An undo has limits, so that it does not take all memory.
const (
	maxChanges = 100000 // that it looks at closely
	maxObjects = 5000   // that it brings back or changes
)

func tooMuch(what string, most int) error {
	return tooLarge("an undo is of at most %d %s: limit it to a namespace, to resources, or to a shorter time", most, what)
}

// causeTooLarge is in the error of an undo that is larger than one may be.
const causeTooLarge = "UndoTooLarge"

func tooLarge(format string, args ...any) error {
	err := apierrors.NewBadRequest(fmt.Sprintf(format, args...))
	err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: causeTooLarge, Message: "limit it"}}}
	return err
}

// past is what has happened, as far as a user may know it.
type past struct {
	log    *changes.Log
	user   user.Info
	mayGet func(ctx context.Context, resource schema.GroupResource, namespace, name string) (bool, error)
	lately lately
}

// lately has changes that were read a moment ago, since most are read several times.
type lately struct {
	entries map[int64]*changes.Entry
	bytes   int
}

// latelyBytes is how much it may hold; then it forgets all.
const latelyBytes = 8 << 20

func (l *lately) add(e *changes.Entry) {
	size := changeBytes + len(e.Before) + len(e.After)
	if l.entries == nil || l.bytes+size > latelyBytes {
		l.entries, l.bytes = map[int64]*changes.Entry{}, 0
	}
	l.entries[e.ID] = e
	l.bytes += size
}

func newPast(log *changes.Log, user user.Info) *past {
	return &past{log: log, user: user, mayGet: log.MayGet(user)}
}

// errEnough ends a walk.
var errEnough = errors.New("enough has been read")

// walk calls yield with the changes of q, the newest first, of which only is true. An error of yield ends it and is returned, but
// for errEnough. What the changes are is known without their objects, of which there can be many, and large ones.
func (p *past) walk(ctx context.Context, q history.Query, only func(*history.Change) bool, yield func(*change) error) error {
	q.NewestFirst, q.Lazy = true, true
	ctx = sqlstore.WithTransaction(ctx, nil) // history does not have what is not committed
	return walked(p.log.Each(ctx, p.user, &changes.Selection{Query: q, Only: only}, func(e *changes.Entry) error {
		return yield(&change{Change: e.Change, log: p.log, lately: &p.lately})
	}))
}

// walkAll is walk with the changes of all objects, whoever may know them. None of it may be shown.
func (p *past) walkAll(ctx context.Context, q history.Query, only func(*history.Change) bool, yield func(*change) error) error {
	q.NewestFirst, q.Lazy = true, true
	ctx = sqlstore.WithTransaction(ctx, nil)
	return walked(p.log.All(ctx, &changes.Selection{Query: q, Only: only}, func(e *changes.Entry) error {
		return yield(&change{Change: e.Change, log: p.log, lately: &p.lately})
	}))
}

func walked(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return apistorage.ClientError(err)
}

// begin returns the oldest revision at which everything is known as it was, and whether nothing is known of another revision, since what
// was then was lost.
func (p *past) begin(ctx context.Context, other int64) (revision int64, lost bool, err error) {
	revision, lost, err = p.log.Store.HistoryFrom(ctx, other)
	return revision, lost, apistorage.ClientError(err)
}

// end returns the revision that a moment without a time names. It is never within a transaction: that has happened as a whole at each of its
// revisions, and before none of them.
func (p *past) end(ctx context.Context, m *Moment) (int64, error) {
	if m.Before != 0 {
		first, _, err := p.log.Store.TransactionAt(ctx, m.Before)
		return first - 1, apistorage.ClientError(err)
	}
	last, err := p.log.Store.WholeTransaction(ctx, m.Revision)
	return last, apistorage.ClientError(err)
}

// revisionAt returns the last revision of a moment.
func (p *past) revisionAt(ctx context.Context, t time.Time) (int64, error) {
	revision, err := p.log.Store.RevisionAt(ctx, t)
	return revision, apistorage.ClientError(err)
}

// change is one version of an object that replaced another.
type change struct {
	*history.Change
	log     *changes.Log
	lately  *lately  // of its past
	touched []string // the paths of what an update changed, once they are known
	known   bool
}

func (c *change) key() key { return keyOf(c.Change) }

func keyOf(c *history.Change) key { return key{c.Group, c.Resource, c.Namespace, c.Name} }

func (c *change) reference() ChangeReference {
	written := time.UnixMilli(c.WrittenAt).UTC().Truncate(time.Second)
	return ChangeReference{
		Revision: c.ID, Operation: string(c.Operation), Time: metav1.NewTime(written),
		User: c.User, ImpersonatedUser: c.ImpersonatedUser, FieldManager: c.FieldManager,
	}
}

// read reads the object before and after the change, and what else is known of it only then. Only its past keeps it, for a moment.
func (c *change) read(ctx context.Context) (*changes.Entry, error) {
	if known := c.lately.entries[c.ID]; known != nil {
		return known, nil
	}
	row := *c.Change
	e := &changes.Entry{Change: &row}
	if err := c.log.Read(ctx, e); err != nil {
		return nil, apistorage.ClientError(err)
	}
	c.lately.add(e)
	return e, nil
}

// versions returns what the change replaced and what it made of it, stripped, and the managed fields of the former. Either is nil if it is not
// there or not known.
func (c *change) versions(ctx context.Context) (before, after map[string]any, managed []metav1.ManagedFieldsEntry, err error) {
	e, err := c.read(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if before, err = decode(e.Before); err == nil {
		after, err = decode(e.After)
	}
	k, served := c.key(), c.log.Served
	managed = (&unstructured.Unstructured{Object: before}).GetManagedFields()
	return Strip(served, k.groupResource(), before), Strip(served, k.groupResource(), after), managed, err
}

// marks reports whether the object was marked for deletion before and after the change.
func (c *change) marks(ctx context.Context) (was, is bool, err error) {
	e, err := c.read(ctx)
	if err != nil {
		return false, false, err
	}
	return marked(e.Before), marked(e.After), nil
}

// touches reports whether the change changed a field, or anything but the status if path is "".
func (c *change) touches(ctx context.Context, path string) (bool, error) {
	if c.Operation != update {
		return true, nil
	}
	if !c.known {
		before, after, _, err := c.versions(ctx)
		if err != nil {
			return false, err
		}
		c.known = true
		switch {
		case before == nil || after == nil:
			c.touched = []string{""}
		default:
			for _, d := range fieldpath.DifferencesOf(before, after) {
				c.touched = append(c.touched, d.Path)
			}
		}
	}
	return slices.ContainsFunc(c.touched, func(touched string) bool { return within(touched, path) || within(path, touched) }), nil
}

// marked reports whether an object is being deleted.
func marked(value []byte) bool {
	if !bytes.Contains(value, []byte(`"deletionTimestamp"`)) {
		return false
	}
	var object metav1.PartialObjectMetadata
	return json.Unmarshal(value, &object) == nil && object.DeletionTimestamp != nil
}

// owners returns the uids of an object's owners.
func owners(value []byte) (uids []string) {
	if !bytes.Contains(value, []byte(`"ownerReferences"`)) {
		return nil
	}
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(value, &object) == nil {
		for _, owner := range object.OwnerReferences {
			uids = append(uids, string(owner.UID))
		}
	}
	return uids
}

// key names an object.
type key struct{ group, resource, namespace, name string }

func (k key) String() string {
	if k.namespace != "" {
		return k.full() + " " + k.namespace + "/" + k.name
	}
	return k.full() + " " + k.name
}

func (k key) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.resource}
}

// full returns the resource with its group.
func (k key) full() string { return k.groupResource().String() }

func (k key) query() history.Query {
	return history.Query{Resource: &history.Resource{Group: k.group, Name: k.resource}, Namespace: &k.namespace, Name: k.name}
}

var (
	namespaces  = key{resource: "namespaces"}
	definitions = key{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"}
)

func (k key) of(kind key) bool { return k.group == kind.group && k.resource == kind.resource }

// holds reports whether other is gone once k is: it is in the namespace or of the definition k.
func (k key) holds(other key) bool {
	return k.of(namespaces) && other.namespace == k.name || k.of(definitions) && other.full() == k.name
}

// content is a query for what k holds. It reports whether k is something that holds others.
func (k key) content() (q history.Query, ok bool) {
	switch {
	case k.of(namespaces):
		return history.Query{Namespace: &k.name}, true
	case k.of(definitions):
		resource := schema.ParseGroupResource(k.name)
		return history.Query{Resource: &history.Resource{Group: resource.Group, Name: resource.Resource}}, true
	}
	return q, false
}

func decode(value []byte) (map[string]any, error) {
	if len(value) == 0 {
		return nil, nil
	}
	var object map[string]any
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, fmt.Errorf("an object in history is not JSON: %w", err)
	}
	return object, nil
}
