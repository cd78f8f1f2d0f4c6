package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// The resources of the fleet.
const (
	resource = "clusters"
	pools    = "clusterpools"
)

// workers is how many clusters are looked at at once.
const workers = 8

// item is something that the reconciler looks at: a Cluster, a ClusterPool, or the id of a deleted database.
type item struct {
	kind string // resource, pools or databases
	types.NamespacedName
}

const databases = "databases"

// queue has what the reconciler has to look at.
type queue = workqueue.TypedRateLimitingInterface[item]

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](50*time.Millisecond, 10*time.Second))
}

// look has the reconciler look at a Cluster.
func (f *Fleet) look(name types.NamespacedName) { f.queue.Add(item{resource, name}) }

// lookAtPool has the reconciler look at a ClusterPool.
func (f *Fleet) lookAtPool(name types.NamespacedName) { f.queue.Add(item{pools, name}) }

// reconcileAll follows the Clusters and ClusterPools until ctx ends, and makes what they ask for.
func (f *Fleet) reconcileAll(ctx context.Context) {
	context.AfterFunc(ctx, f.queue.ShutDown)
	var running sync.WaitGroup
	if err := f.scheduleRemovals(ctx); err != nil && ctx.Err() == nil {
		slog.Error("the databases of deleted clusters can't be listed; they are removed after the next start", "error", err)
	}
	follow := func(of string, example runtime.Object, o observed) {
		list := cache.NewListWatchFromClient(f.client, of, "", fields.Everything())
		r := cache.NewReflectorWithOptions(list, example, o, cache.ReflectorOptions{Name: of})
		running.Go(func() { r.RunWithContext(ctx) })
	}
	follow(resource, &v1alpha1.Cluster{}, observed{see: func(object any) {
		o := object.(*v1alpha1.Cluster)
		f.known(o)
		f.look(nameOf(o))
	}, gone: func(object any) { f.look(nameOf(object.(*v1alpha1.Cluster))) }, all: func() {
		f.began.Do(func() { close(f.hosting) })
	}})
	seePool := func(object any) { f.lookAtPool(nameOf(object.(*v1alpha1.ClusterPool))) }
	follow(pools, &v1alpha1.ClusterPool{}, observed{see: seePool, gone: seePool, all: func() {}})
	select {
	case <-f.hosting: // a pool must know its clusters
	case <-ctx.Done():
	}
	running.Go(func() { f.reportUnknown(ctx) })
	for range workers {
		running.Go(func() { f.work(ctx) })
	}
	running.Wait()
}

// observed is a cache.Store that keeps none of the objects.
type observed struct {
	see  func(object any)
	gone func(object any)
	all  func() // is called when it has seen all
}

func (o observed) Add(object any) error    { o.see(object); return nil }
func (o observed) Update(object any) error { o.see(object); return nil }
func (o observed) Delete(object any) error { o.gone(object); return nil }
func (o observed) Resync() error           { return nil }
func (o observed) List() []any             { return nil }
func (o observed) ListKeys() []string      { return nil }

func (o observed) Get(any) (any, bool, error)         { return nil, false, nil }
func (o observed) GetByKey(string) (any, bool, error) { return nil, false, nil }

func (o observed) Replace(objects []any, _ string) error {
	for _, object := range objects {
		o.see(object)
	}
	o.all()
	return nil
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (f *Fleet) work(ctx context.Context) {
	for {
		one, ended := f.queue.Get()
		if ended {
			return
		}
		var err error
		switch one.kind {
		case resource:
			err = f.reconcile(ctx, one.NamespacedName)
		case pools:
			err = f.reconcilePool(ctx, one.NamespacedName)
		case databases:
			err = f.removeDeleted(ctx, one.Name)
		}
		switch {
		case err == nil:
			f.queue.Forget(one)
		case apierrors.IsConflict(err): // somebody was faster, and the next look sees what they did
			f.queue.AddRateLimited(one)
		default:
			if n := f.queue.NumRequeues(one); n > 0 && n&(n-1) == 0 { // most errors are gone at the second attempt; others must not fill the log
				logFailure(one.kind+" are not as they should be; trying again", one.NamespacedName, err)
			}
			f.queue.AddRateLimited(one)
		}
		f.queue.Done(one)
	}
}

// get reads a Cluster.
func (f *Fleet) get(ctx context.Context, name types.NamespacedName) (*v1alpha1.Cluster, error) {
	o := &v1alpha1.Cluster{}
	return o, f.client.Get().Namespace(name.Namespace).Resource(resource).Name(name.Name).Do(ctx).Into(o)
}

// made reads a Cluster, and waits until it has its database.
func (f *Fleet) made(ctx context.Context, name types.NamespacedName) (*v1alpha1.Cluster, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, makingTimeout, errors.New("the cluster is still being created"))
	defer cancel()
	for {
		o, err := f.get(ctx, name)
		switch {
		case context.Cause(ctx) != nil:
			return nil, context.Cause(ctx)
		case err != nil || o.Status.Database != "":
			return o, err
		case o.Status.Phase == v1alpha1.PhaseFailed:
			return nil, errors.New(o.Status.Message)
		}
		select {
		case <-time.After(makingPoll):
		case <-ctx.Done():
		}
	}
}

const (
	makingTimeout = 20 * time.Second
	makingPoll    = 20 * time.Millisecond
)

// reconcile makes what a Cluster asks for, and writes what has become of it.
func (f *Fleet) reconcile(ctx context.Context, name types.NamespacedName) error {
	found := f.find(name) // before its object is looked for: then it is not another one that has just been made
	o, err := f.get(ctx, name)
	switch {
	case apierrors.IsNotFound(err) && found != nil:
		return f.lose(ctx, found)
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	c := f.known(o)
	if c == nil {
		return nil // there is another one by now
	}
	before := o.DeepCopy()
	switch {
	case o.DeletionTimestamp != nil:
		return f.remove(ctx, c, o)
	case o.Status.Database == "":
		err := f.create(ctx, c, o)
		if errors.Is(err, errOriginal) {
			f.queue.AddAfter(item{resource, name}, originalPause)
			return nil
		}
		if err != nil {
			return f.failed(ctx, o, before, err)
		}
	}
	news := c.takeNews()
	var written error
	defer func() { c.wroteNews(news, written) }()
	news.writeTo(&o.Status)
	c.writeKeysTo(&o.Status)
	if o.Status.Phase == v1alpha1.PhaseAwake && !c.runs(1) {
		f.recover(ctx, c)
	}
	expired := setExpiry(o, time.Now())
	setReady(o)
	if expired {
		return f.expire(ctx, o)
	}
	if written = f.putStatus(ctx, o, before); written != nil {
		return written
	}
	f.tellOwner(before, o)
	f.apply(ctx, c, o)
	return nil
}

// writeNews writes what has become of a cluster that this server has just put to sleep.
func (f *Fleet) writeNews(ctx context.Context, c *cluster) error {
	o, err := f.get(ctx, c.name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	before, news := o.DeepCopy(), c.takeNews()
	news.writeTo(&o.Status)
	c.writeKeysTo(&o.Status)
	err = f.putStatus(ctx, o, before)
	c.wroteNews(news, err)
	return err
}

// runs reports whether the cluster is awake or wakes up, or its status is about to say that it is not, by others than own writes.
func (c *cluster) runs(own int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running != nil || c.news != nil || c.writing > own
}

// recover wakes a cluster that was awake when this server, or the one that had it, was killed: nobody knows what it had to do. One that
// has just fallen asleep is another thing: its status, read again when nothing is to be written, says so.
func (f *Fleet) recover(ctx context.Context, c *cluster) {
	if o, err := f.get(ctx, c.name); err == nil && o.Status.Phase == v1alpha1.PhaseAwake && !c.runs(1) {
		go f.rouse(ctx, c)
	}
}

// rouse wakes a cluster that nobody has asked for. It falls asleep soon.
func (f *Fleet) rouse(ctx context.Context, c *cluster) {
	if _, err := c.wake(ctx); err != nil && !errors.Is(err, errGone) {
		c.fleet.queue.AddAfter(item{resource, c.name}, time.Minute)
	}
}

// apply has the cluster do what its object says.
func (f *Fleet) apply(ctx context.Context, c *cluster, o *v1alpha1.Cluster) {
	next := nextLook(o)
	due := o.Status.NextWake != nil && !o.Status.NextWake.After(time.Now())
	after := sleepsAfter(o)
	if r := c.current(); r != nil {
		r.change(after)
		f.applyTo(ctx, c, r, o)
	} else if due || after == 0 {
		go f.rouse(ctx, c)
	}
	if due {
		next = time.Time{}
	}
	f.alarms.set(&c.alarm, next, c)
	if c.isMember() {
		f.lookAtPool(c.pool())
	}
}

// failed writes why a Cluster could not be made, and returns the error, so that it is tried again.
func (f *Fleet) failed(ctx context.Context, o, before *v1alpha1.Cluster, err error) error {
	if apierrors.IsConflict(err) || ctx.Err() != nil {
		return err
	}
	o.Status = *before.Status.DeepCopy()
	o.Status.Phase, o.Status.Message = v1alpha1.PhaseFailed, fmt.Sprintf("The database can't be made: %v.", err)
	setReady(o)
	if writing := f.putStatus(ctx, o, before); writing != nil {
		return errors.Join(err, writing)
	}
	f.tellOwner(before, o)
	return err
}

// create makes the database of a new Cluster, or takes back that of one whose deletion is undone.
func (f *Fleet) create(ctx context.Context, c *cluster, o *v1alpha1.Cluster) error {
	id := o.Annotations[v1alpha1.DatabaseAnnotation]
	if id == "" { // it was made by a server without --clusters
		return f.client.Patch(types.MergePatchType).Namespace(o.Namespace).Resource(resource).Name(o.Name).Body([]byte(`{"metadata":{"labels":{}}}`)).Do(ctx).Error()
	}
	restored, err := f.adopt(ctx, id)
	switch {
	case err != nil:
		return err
	case restored:
	case o.Spec.From == nil:
		err = f.config.Databases.Create(ctx, id)
	default:
		err = f.copyInto(ctx, id, o)
	}
	if err != nil {
		return err
	}
	ca, err := f.host.ServingCA()
	if err != nil {
		return err
	}
	o.Status.Database, o.Status.URL, o.Status.CABundle = id, f.url(c.name), ca
	o.Status.Phase, o.Status.Message = v1alpha1.PhaseAsleep, ""
	if restored {
		f.event(o, "Normal", "Restored", "The deletion was undone: the cluster has its objects again.")
	} else if o.Labels[v1alpha1.PoolLabel] == "" {
		f.event(o, "Normal", "Created", "The cluster answers at "+o.Status.URL+".")
	}
	return nil
}

// errOriginal means that a cluster that is forked does not have its database yet.
var errOriginal = errors.New("the cluster to fork is still being created")

// originalPause is the pause before it is looked at again. No worker waits for it, since it needs one.
const originalPause = 100 * time.Millisecond

// copyInto makes a database from what a Cluster begins with.
func (f *Fleet) copyInto(ctx context.Context, id string, o *v1alpha1.Cluster) (err error) {
	var at Moment
	if o.Spec.From.Time != nil {
		at.Time = o.Spec.From.Time.Time
	}
	if version := o.Spec.From.ResourceVersion; version != "" {
		if _, err := fmt.Sscan(version, &at.Revision); err != nil {
			return fmt.Errorf("spec.from.resourceVersion %q is not a resourceVersion", version)
		}
	}
	var revision int64
	if origin := o.Spec.From; origin.Cluster != nil {
		name := types.NamespacedName{Namespace: origin.Cluster.Namespace, Name: origin.Cluster.Name}
		if name.Namespace == "" {
			name.Namespace = o.Namespace
		}
		from, err := f.get(ctx, name)
		switch {
		case err != nil:
			return err
		case from.Status.Database == "":
			return errOriginal
		}
		revision, err = f.config.Databases.Fork(ctx, from.Status.Database, id, at)
		if err != nil {
			return err
		}
	} else if revision, err = f.config.Databases.Restore(ctx, origin.Backup, id, at); err != nil {
		return err
	}
	o.Status.ForkedAt = fmt.Sprint(revision)
	return nil
}

// remove puts a Cluster whose deletion was requested to sleep, and its database among the deleted ones.
func (f *Fleet) remove(ctx context.Context, c *cluster, o *v1alpha1.Cluster) error {
	c.end(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if id := o.Annotations[v1alpha1.DatabaseAnnotation]; id != "" {
		if err := f.discard(ctx, c, keepDeleted(o)); err != nil {
			return err
		}
	}
	if !slices.Contains(o.Finalizers, v1alpha1.Finalizer) {
		return nil
	}
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(one string) bool { return one == v1alpha1.Finalizer })
	if err := f.client.Put().Namespace(o.Namespace).Resource(resource).Name(o.Name).Body(o).Do(ctx).Into(o); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	f.event(o, "Normal", "Deleted", deletedMessage(keepDeleted(o)))
	return nil
}

// lose ends a cluster whose object is gone, also if somebody has removed its finalizer.
func (f *Fleet) lose(ctx context.Context, c *cluster) error {
	c.end(ctx)
	err := f.discard(ctx, c, defaultKeepDeleted)
	if err != nil {
		logFailure("the database of a cluster that is gone stays", c.name, err)
	}
	f.forget(c)
	if c.isMember() {
		f.lookAtPool(c.pool())
	}
	return err
}
