package informer

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/sqlstore"
)

// Feed feeds informers from a store, in one goroutine, which runs while there are informers.
//
// If the goroutine falls too far behind the writers, the store ends its subscription. Then it subscribes again, and all informers read their
// collections again.
type Feed struct {
	store *sqlstore.Store
	wake  chan struct{} // buffered, one: there is something due

	mu        sync.Mutex
	informers map[sqlstore.Resource][]*Informer
	due       []*Informer            // whose collections must be read
	sub       *sqlstore.Subscription // nil if there is none
	running   bool
	idle      bool // the informers have what sub has
}

// NewFeed returns a feed from a store.
func NewFeed(store *sqlstore.Store) *Feed {
	return &Feed{store: store, wake: make(chan struct{}, 1), informers: map[sqlstore.Resource][]*Informer{}}
}

// add feeds an informer from now on.
func (f *Feed) add(i *Informer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resource := i.source.Resource()
	f.informers[resource] = append(f.informers[resource], i)
	if f.sub != nil {
		f.sub.Also(resource)
	}
	f.due = append(f.due, i)
	if !f.running {
		f.running = true
		go f.run()
	}
	f.awake()
}

// remove stops feeding an informer.
func (f *Feed) remove(i *Informer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resource := i.source.Resource()
	left := slices.DeleteFunc(slices.Clone(f.informers[resource]), func(other *Informer) bool { return other == i })
	if f.informers[resource] = left; len(left) == 0 {
		delete(f.informers, resource)
		if f.sub != nil {
			f.sub.Except(resource)
		}
	}
	f.awake()
}

// again has the collection of an informer read once more.
func (f *Feed) again(i *Informer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.due, i) && slices.Contains(f.informers[i.source.Resource()], i) {
		f.due = append(f.due, i)
		f.awake()
	}
}

func (f *Feed) awake() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// reached returns the revision up to which informers have all changes, 0 if some are on their way.
func (f *Feed) reached() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.idle || f.sub == nil {
		return 0
	}
	if revision, all := f.sub.Progress(); all {
		return revision
	}
	return 0
}

func (f *Feed) run() {
	for f.follow() {
	}
}

// follow feeds the informers until the subscription ends. It returns false if there is nothing left to feed.
func (f *Feed) follow() bool {
	follower := f.store.Follow(context.Background())
	defer follower.Close()
	sub := follower.SubscribeSeveral()
	f.begin(sub)
	for {
		due, more := f.next()
		if !more {
			return false
		}
		for _, i := range due {
			i.fill(f.store)
		}
		changes, err := sub.Drain()
		for _, c := range changes {
			for _, i := range f.fed(c.Resource) {
				if err := i.apply(c, c.Deletes()); err != nil {
					i.fail(err)
				}
			}
			follower.Done(c)
		}
		switch {
		case errors.Is(err, sqlstore.ErrClosed):
			return false
		case err != nil:
			return true
		case len(changes) == 0 && len(due) == 0:
			f.rest(sub)
		default:
			follower.Advance()
		}
	}
}

// begin uses a new subscription: all collections must be read again.
func (f *Feed) begin(sub *sqlstore.Subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sub, f.due = sub, nil
	for resource, informers := range f.informers {
		sub.Also(resource)
		f.due = append(f.due, informers...)
	}
}

// next returns the informers whose collections must be read, or false if there are no informers left.
func (f *Feed) next() (due []*Informer, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = false
	if len(f.informers) == 0 {
		f.sub, f.due, f.running = nil, nil, false
		return nil, false
	}
	due, f.due = f.due, nil
	return due, true
}

// rest waits until there is something to do.
func (f *Feed) rest(sub *sqlstore.Subscription) {
	f.mu.Lock()
	f.idle = len(f.due) == 0
	f.mu.Unlock()
	select {
	case <-sub.Ready():
	case <-f.wake:
	}
}

func (f *Feed) fed(resource sqlstore.Resource) []*Informer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.informers[resource] // remove replaces it
}

// fill makes the indexer contain the collection as it is now.
func (i *Informer) fill(store *sqlstore.Store) {
	objects, revision, err := i.list(store)
	if err == nil {
		err = i.replace(objects, revision)
	}
	if err != nil {
		i.fail(err)
	}
}

// listed is an object of a collection.
type listed struct {
	revision int64
	key      string
	object   any
}

// list reads the collection, in the order of revisions. Objects that the indexer has already are those of the indexer.
func (i *Informer) list(store *sqlstore.Store) (objects []listed, revision int64, err error) {
	revision, err = walk(i.ctx, store, sqlstore.Query{Resource: i.source.Resource(), Terms: i.source.Terms()}, func(r *sqlstore.Record) (err error) {
		known, ok, _ := i.GetIndexer().GetByKey(r.Key)
		if !ok || version(known) != strconv.FormatInt(r.Revision, 10) {
			known, err = i.read(r)
		}
		if known != nil {
			objects = append(objects, listed{r.Revision, r.Key, known})
		}
		return err
	})
	slices.SortFunc(objects, func(a, b listed) int { return cmp.Compare(a.revision, b.revision) })
	return objects, revision, err
}

// List returns the objects of a source in a namespace, as they are now.
func (f *Feed) List(ctx context.Context, source Source, namespace string) (objects []runtime.Object, err error) {
	q := sqlstore.Query{Resource: source.Resource(), Prefix: namespace + "/", Terms: source.Terms()}
	_, err = walk(ctx, f.store, q, func(r *sqlstore.Record) error {
		object, err := source.Object(ctx, r)
		if object != nil {
			objects = append(objects, object)
		}
		return err
	})
	return objects, err
}

// walk calls yield with the records of a query as of one revision, which it returns.
func walk(ctx context.Context, store *sqlstore.Store, q sqlstore.Query, yield func(*sqlstore.Record) error) (revision int64, err error) {
	for {
		page, err := store.Page(ctx, q)
		if err != nil {
			return 0, err
		}
		q.Revision = cmp.Or(q.Revision, page.Revision)
		for _, r := range page.Records {
			q.After = r.Key
			if err := yield(r); err != nil {
				return 0, err
			}
		}
		if !page.More {
			return q.Revision, nil
		}
	}
}

// version returns the resourceVersion of an object.
func version(object any) string {
	if m, err := meta.Accessor(object); err == nil {
		return m.GetResourceVersion()
	}
	return ""
}

// How long an informer waits before it reads its collection again after a failure, as upstream's.
const (
	firstPause = 800 * time.Millisecond
	maxPause   = 30 * time.Second
)

// fail reports that the objects can't be read, and has them read again after a while.
func (i *Informer) fail(err error) {
	i.mu.Lock()
	i.behind = true
	i.pause = min(max(firstPause, 2*i.pause), maxPause)
	pause := i.pause + rand.N(i.pause)
	i.mu.Unlock()
	if i.ctx.Err() != nil {
		return
	}
	time.AfterFunc(pause, func() { i.feed.again(i) })
	if i.onFailure != nil {
		i.onFailure(i.ctx, cache.NewNamedReflector(i.name, &cache.ListWatch{}, nil, i.GetIndexer(), 0), err)
		return
	}
	utilruntime.HandleErrorWithContext(i.ctx, err, "An informer can't read its objects", "resource", i.name)
}
