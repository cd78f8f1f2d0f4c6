package changes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/history"
)

// Touched is an object that has changed between two revisions, perhaps back to what it was.
type Touched struct {
	Resource        schema.GroupResource
	Namespace, Name string
	// Last is its last change, of which only what is not packed is known.
	Last *history.Change
	// Several reports whether there may be other changes before.
	Several bool
}

// Key orders objects: by resource, namespace and name.
func (t *Touched) Key() string {
	return strings.Join([]string{t.Resource.String(), t.Namespace, t.Name}, "/")
}

// Touched returns at most the first most objects that have changed after a revision, up to another one, by their keys, of those after a key;
// since 0, all that exist. skip leaves out objects.
func (l *Log) Touched(ctx context.Context, since, until int64, after string, most int, skip func(*Touched) bool) ([]*Touched, error) {
	found := map[string]*Touched{}
	see := func(e *Entry) error {
		c := e.Change
		t := &Touched{Resource: schema.GroupResource{Group: c.Group, Resource: c.Resource}, Namespace: c.Namespace, Name: c.Name, Last: c, Several: c.Replaces != 0 && since == 0}
		key := t.Key()
		if key <= after || skip(t) {
			return nil
		}
		if before := found[key]; before != nil {
			t.Several = true
		}
		if found[key] = t; len(found) >= 2*most {
			for _, key := range slices.Sorted(maps.Keys(found))[most:] {
				delete(found, key)
			}
		}
		return nil
	}
	if since == 0 {
		if err := l.Live(ctx, history.Query{}, false, see); err != nil {
			return nil, apistorage.ClientError(err)
		}
		since = until // what was deleted meanwhile existed then
	}
	before := until + 1
	if since == until {
		before = 0
	}
	if err := l.All(ctx, &Selection{Query: history.Query{After: since, Before: before, Lazy: true}}, see); err != nil {
		return nil, apistorage.ClientError(err)
	}
	keys := slices.Sorted(maps.Keys(found))
	touched := make([]*Touched, 0, min(len(keys), most))
	for _, key := range keys[:min(len(keys), most)] {
		touched = append(touched, found[key])
	}
	return touched, nil
}

// At returns the JSON of an object as it was at a revision, with that of the version; nil if there was none. It returns an API error if that
// is no longer kept.
func (l *Log) At(ctx context.Context, resource schema.GroupResource, namespace, name string, revision int64) (text []byte, version int64, err error) {
	stored, key := object{resource, namespace, name}.stored()
	page, err := l.Store.Page(ctx, sqlstore.Query{Resource: stored, Revision: revision, Exactly: &key})
	if errors.Is(err, sqlstore.ErrCompacted) {
		return nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("the state at resourceVersion %d is no longer kept", revision))
	}
	if err != nil || len(page.Records) == 0 {
		return nil, 0, apistorage.ClientError(err)
	}
	found := page.Records[0]
	text, _, err = apistorage.Decrypt(ctx, l.Transformer(resource), found.Value, resources.KeyPrefix(resource)+"/"+key)
	if err != nil {
		return nil, 0, apierrors.NewInternalError(fmt.Errorf("decrypting revision %d: %w", found.Revision, err))
	}
	return text, found.Revision, nil
}

// Back calls yield with the changes of an object after a revision up to another one, the newest first, as far as they are kept, until it returns
// true.
func (l *Log) Back(ctx context.Context, t *Touched, since, until int64, yield func(*Entry) (enough bool)) error {
	q := history.Query{
		Resource: &history.Resource{Group: t.Resource.Group, Name: t.Resource.Resource}, Namespace: &t.Namespace, Name: t.Name,
		After: since, Before: until + 1, NewestFirst: true,
	}
	err := l.All(ctx, &Selection{Query: q}, func(e *Entry) error {
		if yield(e) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return apistorage.ClientError(err)
}
