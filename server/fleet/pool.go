package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// creations is how many clusters of a pool are created at once.
const creations = 8

// membership says which place a cluster has in its pool.
type membership struct {
	pool     string
	template string // a hash of the one that it was made from
	claimed  bool
	deleting bool
	ready    bool // its database is there
	failed   bool
	tried    bool // it has been awake, and so has all that a first start makes
}

// joinPool adds a cluster to its pool, if it has one, or changes its place there. f.mu is held.
func (f *Fleet) joinPool(c *cluster, o *v1alpha1.Cluster) {
	pool := o.Labels[v1alpha1.PoolLabel]
	if pool == "" {
		return
	}
	m := &membership{
		pool: pool, template: o.Annotations[v1alpha1.TemplateAnnotation], claimed: o.Status.ClaimedBy != "", deleting: o.DeletionTimestamp != nil,
		ready: o.Status.Database != "" && o.Status.Phase != v1alpha1.PhaseFailed, failed: o.Status.Phase == v1alpha1.PhaseFailed, tried: o.Status.Wakes > 0,
	}
	c.mu.Lock()
	c.member = m
	c.mu.Unlock()
	name := types.NamespacedName{Namespace: c.name.Namespace, Name: pool}
	if f.members[name] == nil {
		f.members[name] = map[*cluster]bool{}
	}
	f.members[name][c] = true
	f.claimed.changed(name)
}

// leavePool removes a cluster from its pool. f.mu is held.
func (f *Fleet) leavePool(c *cluster) {
	if !c.isMember() {
		return
	}
	members := f.members[c.pool()]
	delete(members, c)
	if len(members) == 0 {
		delete(f.members, c.pool())
	}
}

func (c *cluster) membership() membership {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.member == nil {
		return membership{}
	}
	return *c.member
}

func (c *cluster) isMember() bool { return c.membership().pool != "" }

// pool returns the name of the pool that the cluster is of.
func (c *cluster) pool() types.NamespacedName {
	return types.NamespacedName{Namespace: c.name.Namespace, Name: c.membership().pool}
}

// membersOf returns the clusters of a pool, the oldest of them by name first.
func (f *Fleet) membersOf(pool types.NamespacedName) []*cluster {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := make([]*cluster, 0, len(f.members[pool]))
	for c := range f.members[pool] {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *cluster) int { return cmp.Compare(a.name.Name, b.name.Name) })
	return all
}

// counted are the clusters of a pool.
type counted struct {
	current, outdated, failed []*cluster // that wait to be claimed
	ready, claimed            int
}

func (f *Fleet) count(pool types.NamespacedName, template string) (n counted) {
	for _, c := range f.membersOf(pool) {
		switch m := c.membership(); {
		case m.deleting:
		case m.claimed:
			n.claimed++
		case m.template != template:
			n.outdated = append(n.outdated, c)
		case m.failed:
			n.failed = append(n.failed, c)
			n.current = append(n.current, c)
		default:
			n.current = append(n.current, c)
			if m.ready {
				n.ready++
			}
		}
	}
	return n
}

// reconcilePool has a pool have as many clusters as it should.
func (f *Fleet) reconcilePool(ctx context.Context, name types.NamespacedName) error {
	pool := &v1alpha1.ClusterPool{}
	err := f.client.Get().Namespace(name.Namespace).Resource(pools).Name(name.Name).Do(ctx).Into(pool)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return err
	}
	template := hashOf(&pool.Spec.Template)
	n := f.count(name, template)
	if gone {
		return f.dropUnclaimed(ctx, slices.Concat(n.current, n.outdated))
	}
	wanted := int(pool.Spec.Replicas)
	if pool.DeletionTimestamp != nil {
		wanted = 0
	}
	making := f.addMembers(ctx, pool, template, wanted-len(n.current))
	surplus := n.current[min(wanted, len(n.current)):]
	if n.ready >= wanted { // until then, outdated ones are better than none
		surplus = slices.Concat(surplus, n.outdated)
	}
	err = cmp.Or(making, f.dropUnclaimed(ctx, surplus))
	n = f.count(name, template)
	f.startOnce(ctx, n.current)
	message := ""
	switch {
	case making != nil:
		message = fmt.Sprintf("Clusters can't be created: %v.", making)
	case len(n.failed) > 0:
		message = fmt.Sprintf("%d clusters have failed; the status of %s says why.", len(n.failed), n.failed[0].name.Name)
	}
	status := v1alpha1.ClusterPoolStatus{
		Replicas: int32(len(n.current)), Ready: int32(n.ready), Claimed: int32(n.claimed), Message: message,
	}
	if !apiequality.Semantic.DeepEqual(status, pool.Status) {
		pool.Status = status
		err = cmp.Or(err, f.client.Put().Namespace(name.Namespace).Resource(pools).Name(name.Name).SubResource("status").Body(pool).Do(ctx).Error())
	}
	return err
}

// hashOf returns a hash of a template.
func hashOf(t *v1alpha1.ClusterTemplate) string {
	text, _ := json.Marshal(t) // never fails
	h := fnv.New64a()
	_, _ = h.Write(text)
	return fmt.Sprintf("%016x", h.Sum64())
}

// addMembers creates clusters of a pool.
func (f *Fleet) addMembers(ctx context.Context, pool *v1alpha1.ClusterPool, template string, missing int) (err error) {
	if missing <= 0 {
		return nil
	}
	var (
		creating sync.WaitGroup
		mu       sync.Mutex
	)
	slots := make(chan struct{}, creations)
	for range missing {
		slots <- struct{}{}
		mu.Lock()
		failed := err
		mu.Unlock()
		if failed != nil || ctx.Err() != nil {
			break
		}
		creating.Go(func() {
			defer func() { <-slots }()
			o := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{
				GenerateName: pool.Name + "-", Namespace: pool.Namespace,
				Labels:      merged(pool.Spec.Template.Labels, v1alpha1.PoolLabel, pool.Name),
				Annotations: merged(pool.Spec.Template.Annotations, v1alpha1.TemplateAnnotation, template),
			}, Spec: pool.Spec.Template.Spec}
			failure := f.client.Post().Namespace(pool.Namespace).Resource(resource).Body(o).Do(ctx).Into(o)
			if failure == nil {
				f.known(o)
				return
			}
			mu.Lock()
			err = cmp.Or(err, failure)
			mu.Unlock()
		})
	}
	creating.Wait()
	return err
}

func merged(all map[string]string, key, value string) map[string]string {
	copied := map[string]string{key: value}
	for k, v := range all {
		if k != key {
			copied[k] = v
		}
	}
	return copied
}

// dropUnclaimed deletes resource, unless they are claimed meanwhile.
func (f *Fleet) dropUnclaimed(ctx context.Context, surplus []*cluster) (err error) {
	for _, c := range surplus {
		o, failed := f.get(ctx, c.name)
		if failed == nil && o.Status.ClaimedBy == "" && o.UID == c.uid && o.DeletionTimestamp == nil {
			failed = f.deleteCluster(ctx, o)
		}
		if failed != nil && !apierrors.IsNotFound(failed) {
			err = cmp.Or(err, failed)
		}
	}
	return err
}

// startOnce wakes clusters that have never been awake: the first start takes longer than later ones. They soon fall asleep.
func (f *Fleet) startOnce(ctx context.Context, unclaimed []*cluster) {
	for _, c := range unclaimed {
		if m := c.membership(); m.ready && !m.tried && !c.awake() {
			go f.rouse(ctx, c)
		}
	}
}
