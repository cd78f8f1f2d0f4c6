package fleet

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// claims are those that are going on in this process. They keep out of each other's way; between processes, the resourceVersions of the
// Clusters decide.
type claims struct {
	mu    sync.Mutex
	taken map[*cluster]bool
	news  map[types.NamespacedName]chan struct{} // closed when a pool has changed that somebody waits for
}

func newClaims() *claims {
	return &claims{taken: map[*cluster]bool{}, news: map[types.NamespacedName]chan struct{}{}}
}

// changed wakes those who wait for a cluster of a pool.
func (c *claims) changed(pool types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if news := c.news[pool]; news != nil {
		close(news)
		delete(c.news, pool)
	}
}

// change returns what is closed when a pool has changed.
func (c *claims) change(pool types.NamespacedName) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := c.news[pool]
	if news == nil {
		news = make(chan struct{})
		c.news[pool] = news
	}
	return news
}

// take reserves a cluster, the best of those that can be claimed, until leave is called. It returns nil if there is none.
func (f *Fleet) take(pool types.NamespacedName) (best *cluster, leave func()) {
	members := f.membersOf(pool)
	f.claimed.mu.Lock()
	defer f.claimed.mu.Unlock()
	for _, c := range members {
		m := c.membership()
		if !m.ready || m.claimed || m.deleting || f.claimed.taken[c] {
			continue
		}
		if best == nil || m.tried {
			best = c
		}
		if m.tried {
			break
		}
	}
	if best == nil {
		return nil, nil
	}
	f.claimed.taken[best] = true
	return best, func() {
		f.claimed.mu.Lock()
		delete(f.claimed.taken, best)
		f.claimed.mu.Unlock()
		f.claimed.changed(pool)
	}
}

// claimTimeout is how long a claim waits for a cluster that is made meanwhile.
const claimTimeout = 30 * time.Second

// claim gives a cluster of a pool to the caller, with credentials for it.
func (f *Fleet) claim(w http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	asked, err := readCredentials(w, r)
	if err != nil {
		return nil, err
	}
	pool := &v1alpha1.ClusterPool{}
	if err := f.client.Get().Namespace(name.Namespace).Resource(pools).Name(name.Name).Do(r.Context()).Into(pool); err != nil {
		return nil, err
	}
	caller, _ := request.UserFrom(r.Context())
	ctx, cancel := context.WithTimeout(r.Context(), claimTimeout)
	defer cancel()
	for {
		change := f.claimed.change(name)
		c, leave := f.take(name)
		if c == nil {
			select {
			case <-change:
				continue
			case <-ctx.Done():
				return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no cluster of the pool %s is ready: try again, or raise its spec.replicas", name))
			}
		}
		claimed, err := f.claimThis(ctx, c, pool, caller.GetName(), asked.Spec.TTL)
		if err == nil && claimed {
			go f.rouse(context.WithoutCancel(ctx), c) // the first request soon comes
			answer, err := f.credentialsFor(r, c.name, asked)
			leave()
			return answer, err
		}
		leave()
		if err != nil {
			return nil, err
		}
	}
}

// claimThis writes who has claimed a cluster, and reports false if it can't be claimed any more.
func (f *Fleet) claimThis(ctx context.Context, c *cluster, pool *v1alpha1.ClusterPool, caller string, asked *metav1.Duration) (bool, error) {
	for {
		o, err := f.get(ctx, c.name)
		if apierrors.IsNotFound(err) {
			c.setClaimed()
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if o.Status.ClaimedBy != "" || o.DeletionTimestamp != nil || o.UID != c.uid {
			c.setClaimed()
			return false, nil
		}
		now := metav1.Now()
		o.Status.ClaimedBy, o.Status.ClaimedAt = caller, &now
		if lives := shorter(pool.Spec.ClaimTTL, asked); lives > 0 {
			o.Status.Expires = &metav1.Time{Time: now.Add(lives)}
		}
		err = f.client.Put().Namespace(o.Namespace).Resource(resource).Name(o.Name).SubResource("status").Body(o).Do(ctx).Into(o)
		switch {
		case err == nil:
			c.setClaimed()
			f.lookAtPool(nameOf(pool))
			return true, nil
		case !apierrors.IsConflict(err):
			return false, err
		}
	}
}

// setClaimed has the cluster not be claimed again, before its change is seen.
func (c *cluster) setClaimed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.member != nil {
		m := *c.member
		m.claimed = true
		c.member = &m
	}
}

// shorter returns the shorter one of two durations; 0 and nil are none.
func shorter(a, b *metav1.Duration) time.Duration {
	switch {
	case a == nil || a.Duration <= 0:
		if b == nil {
			return 0
		}
		return b.Duration
	case b == nil || b.Duration <= 0:
		return a.Duration
	}
	return min(a.Duration, b.Duration)
}

// release gives a claimed cluster back: it is deleted, and its pool has made another one.
func (f *Fleet) release(_ http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	caller, _ := request.UserFrom(r.Context())
	for {
		o, err := f.get(r.Context(), name)
		if err != nil {
			return nil, err
		}
		if o.Status.ClaimedBy == "" || o.Status.ClaimedBy != caller.GetName() {
			return nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource(resource+"/release").GroupResource(), name.Name,
				fmt.Errorf("user %q has not claimed it", caller.GetName()))
		}
		if err := f.deleteCluster(r.Context(), o); !apierrors.IsConflict(err) {
			return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, err
		}
	}
}
