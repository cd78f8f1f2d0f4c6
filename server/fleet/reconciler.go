package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

const (
	resource = "clusters"
	// finalizer keeps a Cluster until its server has stopped.
	finalizer = "fleet.sqube.io/database"
	// workers is how many clusters are made or removed at once.
	workers = 4
)

// reconciler does what Clusters ask for.
type reconciler struct {
	*Fleet
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

func newReconciler(f *Fleet) *reconciler {
	return &reconciler{f, workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())}
}

// run follows the Clusters until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	context.AfterFunc(ctx, r.queue.ShutDown)
	for range workers {
		go r.work(ctx)
	}
	follow := cache.NewReflectorWithOptions(cache.NewListWatchFromClient(r.client, resource, "", fields.Everything()), &v1alpha1.Cluster{}, observed{r},
		cache.ReflectorOptions{Name: "clusters"})
	follow.RunWithContext(ctx)
}

// observed is a cache.Store that keeps none of the objects.
type observed struct{ *reconciler }

func (o observed) see(object any) error {
	c := object.(*v1alpha1.Cluster)
	o.known(c)
	o.queue.Add(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	return nil
}

func (o observed) Add(object any) error    { return o.see(object) }
func (o observed) Update(object any) error { return o.see(object) }
func (o observed) Delete(object any) error { return o.see(object) }
func (o observed) Resync() error           { return nil }
func (o observed) List() []any             { return nil }
func (o observed) ListKeys() []string      { return nil }

func (o observed) Get(any) (any, bool, error)         { return nil, false, nil }
func (o observed) GetByKey(string) (any, bool, error) { return nil, false, nil }

func (o observed) Replace(objects []any, _ string) error {
	for _, object := range objects {
		_ = o.see(object) // never fails
	}
	select {
	case <-o.hosting:
	default:
		close(o.hosting)
	}
	return nil
}

func (r *reconciler) work(ctx context.Context) {
	for {
		name, ended := r.queue.Get()
		if ended {
			return
		}
		if err := r.reconcile(ctx, name); err != nil {
			logFailure("a cluster is not as it should be; trying again", name, err)
			r.queue.AddRateLimited(name)
		} else {
			r.queue.Forget(name)
		}
		r.queue.Done(name)
	}
}

// get reads a Cluster.
func (f *Fleet) get(ctx context.Context, name types.NamespacedName) (*v1alpha1.Cluster, error) {
	o := &v1alpha1.Cluster{}
	return o, f.client.Get().Namespace(name.Namespace).Resource(resource).Name(name.Name).Do(ctx).Into(o)
}

// reconcile makes what a Cluster asks for.
func (r *reconciler) reconcile(ctx context.Context, name types.NamespacedName) error {
	o, err := r.get(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		if c := r.find(name); c != nil {
			c.end(ctx)
			r.forget(name)
		}
		return nil
	case err != nil:
		return err
	case o.DeletionTimestamp != nil:
		return r.remove(ctx, o)
	case o.Status.Database != "":
		return nil
	}
	return r.create(ctx, o)
}

// create makes the database of a new Cluster.
func (r *reconciler) create(ctx context.Context, o *v1alpha1.Cluster) error {
	if !slices.Contains(o.Finalizers, finalizer) {
		o.Finalizers = append(o.Finalizers, finalizer)
		if err := r.client.Put().Namespace(o.Namespace).Resource(resource).Name(o.Name).Body(o).Do(ctx).Into(o); err != nil {
			return err
		}
	}
	id := strings.ToLower(rand.Text()[:20])
	if origin := o.Spec.From; origin == nil {
		if err := r.config.Databases.Create(ctx, id); err != nil {
			return err
		}
	} else if err := r.copyInto(ctx, id, o); err != nil {
		return err
	}
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	ca, err := r.host.ServingCA()
	if err != nil {
		return err
	}
	o.Status.Database, o.Status.URL, o.Status.CABundle, o.Status.Phase = id, r.url(name), ca, v1alpha1.PhaseAsleep
	return r.putStatus(ctx, o)
}

// copyInto makes a database from what a Cluster begins with.
func (r *reconciler) copyInto(ctx context.Context, id string, o *v1alpha1.Cluster) (err error) {
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
	switch origin := o.Spec.From; {
	case origin.Backup != "":
		revision, err = r.config.Databases.Restore(ctx, origin.Backup, id, at)
	case origin.Cluster == nil:
		return errors.New("spec.from names neither a cluster nor a backup")
	default:
		namespace := origin.Cluster.Namespace
		if namespace == "" {
			namespace = o.Namespace
		}
		var from *v1alpha1.Cluster
		if from, err = r.get(ctx, types.NamespacedName{Namespace: namespace, Name: origin.Cluster.Name}); err != nil {
			return err
		}
		revision, err = r.config.Databases.Fork(ctx, from.Status.Database, id, at)
	}
	o.Status.ForkedAt = fmt.Sprint(revision)
	return err
}

// remove removes a Cluster whose deletion was requested.
func (r *reconciler) remove(ctx context.Context, o *v1alpha1.Cluster) error {
	r.known(o).end(ctx)
	if o.Status.Database != "" {
		if err := r.config.Databases.Remove(ctx, o.Status.Database); err != nil {
			return err
		}
	}
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(one string) bool { return one == finalizer })
	return r.client.Put().Namespace(o.Namespace).Resource(resource).Name(o.Name).Body(o).Do(ctx).Into(o)
}

func (f *Fleet) putStatus(ctx context.Context, o *v1alpha1.Cluster) error {
	return f.client.Put().Namespace(o.Namespace).Resource(resource).Name(o.Name).SubResource("status").Body(o).Do(ctx).Into(o)
}

// statusTimeout limits the write of a status, which no request waits for.
const statusTimeout = 10 * time.Second

// woke writes that a cluster is awake.
func (f *Fleet) woke(c *cluster, r *running) {
	keys := c.identified().Keyring
	go f.note(c.name, func(s *v1alpha1.ClusterStatus) {
		s.ClientKey, s.AccountKey = keys.CA, keys.Accounts
		s.Phase, s.Wakes, s.LastWakeMilliseconds = v1alpha1.PhaseAwake, s.Wakes+1, r.took.Milliseconds()
	})
}

// slept writes that a cluster has fallen asleep.
func (f *Fleet) slept(c *cluster, r *running) {
	f.note(c.name, func(s *v1alpha1.ClusterStatus) {
		s.Phase, s.LastRequest = v1alpha1.PhaseAsleep, &metav1.Time{Time: r.last}
	})
}

// note changes the status of a Cluster.
func (f *Fleet) note(name types.NamespacedName, change func(*v1alpha1.ClusterStatus)) {
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	for {
		o, err := f.get(ctx, name)
		if err == nil {
			change(&o.Status)
			err = f.putStatus(ctx, o)
		}
		if !apierrors.IsConflict(err) {
			if !apierrors.IsNotFound(err) {
				logFailure("writing the status of a cluster failed", name, err)
			}
			return
		}
	}
}
