package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// news are what has happened to a cluster since its status was written.
type news struct {
	phase   v1alpha1.Phase // the one that it has now; "" if that has not changed
	trouble string         // why it is Failed
	wakes   int64
	took    time.Duration // of the last wake
	last    time.Time     // the last request
	asleep  *asleep       // what it was when it fell asleep
}

// asleep is what a cluster was when it fell asleep.
type asleep struct {
	objects, bytes, revision int64
	next                     time.Time // when it wakes up by itself
}

// tell adds to the news, which the reconciler soon writes.
func (c *cluster) tell(add func(*news)) {
	c.mu.Lock()
	if c.news == nil {
		c.news = &news{}
	}
	add(c.news)
	c.mu.Unlock()
	c.fleet.look(c.name)
}

// woke tells that the cluster is awake.
func (c *cluster) woke(r *running) {
	c.tell(func(n *news) {
		n.phase, n.trouble, n.wakes, n.took = v1alpha1.PhaseAwake, "", n.wakes+1, r.took
	})
	c.unpark()
}

// couldNotWake tells why the cluster is not awake.
func (c *cluster) couldNotWake(err error) {
	var elsewhere *Elsewhere
	if errors.As(err, &elsewhere) || errors.Is(err, errAbandoned) || errors.Is(err, context.Canceled) || errors.Is(err, errGone) || apierrors.IsNotFound(err) {
		return
	}
	logFailure("waking a cluster failed", c.name, err)
	c.tell(func(n *news) {
		n.phase, n.trouble = v1alpha1.PhaseFailed, fmt.Sprintf("The cluster can't be woken up: %v.", err)
	})
}

// noteRequest tells when somebody last requested something.
func (c *cluster) noteRequest(at time.Time) { c.tell(func(n *news) { n.last = at }) }

// inspect looks at a cluster that has stopped, before its store is closed.
func (c *cluster) inspect(r *running) {
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	found := &asleep{revision: r.newest()}
	still, err := r.store.Still(ctx)
	if err == nil {
		found.objects = still.Objects
		found.next, err = nextWake(ctx, r.store, &r.spec, still.Expires, time.Now())
	}
	if err != nil {
		logFailure("finding out when a cluster has something to do failed; it wakes up in an hour", c.name, err)
		found.next = time.Now().Add(time.Hour)
	}
	c.mu.Lock()
	if c.news == nil {
		c.news = &news{}
	}
	c.news.asleep = found
	c.mu.Unlock()
}

// slept tells that the cluster has fallen asleep.
func (c *cluster) slept(r *running) {
	r.mu.Lock()
	last := r.last
	if !r.asked {
		last = time.Time{}
	}
	r.mu.Unlock()
	c.mu.Lock()
	if c.news == nil {
		c.news = &news{}
	}
	c.news.phase, c.news.last = v1alpha1.PhaseAsleep, last
	found, gone := c.news.asleep, c.gone
	c.mu.Unlock()
	if gone == nil {
		c.park(r)
	}
	if gone != nil || found == nil {
		return
	}
	if bytes, err := c.fleet.config.Databases.Bytes(context.Background(), c.id); err == nil {
		found.bytes = bytes
	}
	c.fleet.look(c.name)
}

// takeNews returns the news, which are then old.
func (c *cluster) takeNews() *news {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.news
	c.news = nil
	c.writing++
	return taken
}

// wroteNews ends what takeNews began. News that could not be written are new again.
func (c *cluster) wroteNews(old *news, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
	if old == nil || err == nil {
		return
	}
	if n := c.news; n != nil { // what is newer wins
		if n.phase != "" {
			old.phase, old.trouble = n.phase, n.trouble
		}
		if n.wakes > 0 {
			old.took = n.took
		}
		old.wakes += n.wakes
		if n.last.After(old.last) {
			old.last = n.last
		}
		if n.asleep != nil {
			old.asleep = n.asleep
		}
	}
	c.news = old
}

// writeTo applies news to a status.
func (n *news) writeTo(s *v1alpha1.ClusterStatus) {
	if n == nil {
		return
	}
	if n.phase != "" {
		s.Phase, s.Message = n.phase, n.trouble
	}
	if n.wakes > 0 {
		s.Wakes, s.LastWakeMilliseconds, s.NextWake = s.Wakes+n.wakes, n.took.Milliseconds(), nil
	}
	if !n.last.IsZero() {
		s.LastRequest = &metav1.Time{Time: n.last}
	}
	if a := n.asleep; a != nil && n.phase == v1alpha1.PhaseAsleep {
		s.Objects, s.ResourceVersion, s.NextWake = a.objects, fmt.Sprint(a.revision), nil
		if !a.next.IsZero() {
			s.NextWake = &metav1.Time{Time: a.next}
		}
		if a.bytes > 0 {
			s.Bytes, s.Size = a.bytes, forPeople(a.bytes)
		}
	}
}

// forPeople returns a number of bytes for people, such as 1536Ki.
func forPeople(bytes int64) string {
	for _, unit := range []struct {
		bytes int64
		name  string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if bytes >= 10*unit.bytes {
			return fmt.Sprint((bytes+unit.bytes/2)/unit.bytes) + unit.name
		}
	}
	return quantity.NewQuantity(bytes, quantity.BinarySI).String()
}

// setReady sets the condition Ready, which follows from the phase.
func setReady(o *v1alpha1.Cluster) {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Answering", ObservedGeneration: o.Generation,
		Message: "Requests are answered, awake or asleep."}
	switch o.Status.Phase {
	case v1alpha1.PhaseFailed:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Failed", o.Status.Message
	case v1alpha1.PhaseCreating, "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Creating", "The database is being made."
	case v1alpha1.PhaseDeleting:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Deleting", "The cluster is being deleted."
	}
	apimeta.SetStatusCondition(&o.Status.Conditions, c)
}

// statusTimeout limits the write of a status, which no request waits for.
const statusTimeout = 10 * time.Second

// putStatus writes a status that differs from the one before. o has what was written then.
func (f *Fleet) putStatus(ctx context.Context, o, before *v1alpha1.Cluster) error {
	if apiequality.Semantic.DeepEqual(o.Status, before.Status) {
		return nil
	}
	return f.client.Put().Namespace(o.Namespace).Resource(resource).Name(o.Name).SubResource("status").Body(o).Do(ctx).Into(o)
}
