package changes

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/history"
)

// A name that is used again is not the same object: rights in a namespace, or to a name, say nothing of what had that name before.

// object names an object; with the name "", all objects of a resource in a namespace.
type object struct {
	schema.GroupResource
	namespace, name string
}

func objectOf(c *history.Change) object {
	return object{schema.GroupResource{Group: c.Group, Resource: c.Resource}, c.Namespace, c.Name}
}

func (o object) stored() (sqlstore.Resource, string) {
	key := o.name
	if o.namespace != "" {
		key = o.namespace + "/" + key
	}
	return sqlstore.Resource{Group: o.Group, Name: o.Resource}, key
}

var (
	namespaces  = schema.GroupResource{Resource: "namespaces"}
	definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
)

// life is how long the object exists that now has a name.
type life struct {
	uid  string // "" if there is none; perhaps unknown
	from int64  // the revision of its creation, or a later one if that is not known exactly
}

// unknown is no uid.
const unknown = "?"

// includes reports whether what happened at a revision, in what an object holds or to itself, was in its life.
func (l life) includes(revision int64) bool { return l.uid != "" && revision >= l.from }

// lives remembers the lives of objects, which never change, by their live versions.
type lives struct {
	mu    sync.Mutex
	known map[object]lived
}

type lived struct {
	version int64
	life
}

const maxLives = 10000

// lifeOf returns the life of an object. If nothing has changed since the last call, that takes a look into memory. So it does if the version of
// now is from a revision that is enough; then the life begins with that, for all that is known.
func (l *Log) lifeOf(ctx context.Context, o object, enough int64) (life, error) {
	resource, key := o.stored()
	page, err := l.Store.Page(ctx, sqlstore.Query{Resource: resource, Exactly: &key, WithoutValues: true})
	if err != nil || len(page.Records) == 0 {
		return life{}, err
	}
	version := page.Records[0].Revision
	if version <= enough {
		return life{unknown, version}, nil
	}
	l.lives.mu.Lock()
	known := l.lives.known[o]
	l.lives.mu.Unlock()
	if known.version == version {
		return known.life, nil
	}
	found, err := l.Store.LifeOf(ctx, resource, key)
	if err != nil || found.UID == "" {
		return life{}, err
	}
	now := lived{version, life{found.UID, found.First}}
	if !found.Whole {
		if now.from, err = l.born(ctx, o, found); err != nil {
			return life{}, err
		}
		if known.uid == now.uid { // when more was known
			now.from = min(now.from, known.from)
		}
	}
	l.lives.mu.Lock()
	defer l.lives.mu.Unlock()
	if l.lives.known == nil || len(l.lives.known) >= maxLives {
		l.lives.known = map[object]lived{}
	}
	l.lives.known[o] = now
	return now.life, nil
}

// born returns a revision at which an object surely existed, of whose creation history knows no more than what the object says: that it was in
// a certain second.
func (l *Log) born(ctx context.Context, o object, known sqlstore.Life) (int64, error) {
	resource, key := o.stored()
	live, _, err := l.Store.Get(ctx, resource, key)
	if err != nil || live == nil {
		return known.First, err
	}
	var stored struct {
		Metadata struct {
			CreationTimestamp metav1.Time `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	data, _, err := apistorage.Decrypt(ctx, l.Transformer(o.GroupResource), live.Value, resources.KeyPrefix(o.GroupResource)+"/"+key)
	if err != nil || json.Unmarshal(data, &stored) != nil || stored.Metadata.CreationTimestamp.IsZero() {
		return known.First, nil
	}
	last, err := l.Store.LastAt(ctx, stored.Metadata.CreationTimestamp.Add(time.Second-time.Millisecond))
	return min(known.First, max(known.Former, last)+1), err
}

// unchanged reports whether there is no change of an object from a revision on.
func (l *Log) unchanged(ctx context.Context, o object, since int64) (bool, error) {
	resource, _ := o.stored()
	unchanged := true
	err := l.Store.Changes(ctx, history.Query{Resource: &resource, Namespace: &o.namespace, Name: o.name, After: max(since-1, 0)}, func(*history.Change) error {
		unchanged = false
		return errEnough
	})
	if !unchanged {
		return false, nil
	}
	return true, err
}
