package fleet

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// maxWarning is how long before its end a cluster warns at most. If it lives for less than ten times that, it is a tenth.
const maxWarning = 24 * time.Hour

// setExpiry sets when a Cluster expires, and whether that is soon. It reports whether the time has come.
func setExpiry(o *v1alpha1.Cluster, now time.Time) (expired bool) {
	began, lives := o.CreationTimestamp.Time, o.Spec.TTL
	switch {
	case o.Status.ClaimedAt != nil: // the claim has set it
		began = o.Status.ClaimedAt.Time
	case lives == nil || lives.Duration <= 0 || o.Labels[v1alpha1.PoolLabel] != "": // what waits to be claimed does not grow old
		o.Status.Expires = nil
	default:
		o.Status.Expires = &metav1.Time{Time: began.Add(lives.Duration).Truncate(time.Second)}
	}
	if o.Status.Expires == nil {
		apimeta.RemoveStatusCondition(&o.Status.Conditions, v1alpha1.ConditionExpiring)
		return false
	}
	ends := o.Status.Expires.Time
	if now.Before(warnsAt(began, ends)) {
		apimeta.RemoveStatusCondition(&o.Status.Conditions, v1alpha1.ConditionExpiring)
	} else {
		message := fmt.Sprintf("The cluster is deleted at %s", ends.UTC().Format(time.RFC3339))
		if o.Status.ClaimedAt != nil {
			message += ": the claim ends then."
		} else {
			message += "; a longer spec.ttl keeps it."
		}
		apimeta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionExpiring, Status: metav1.ConditionTrue, Reason: "TTL", ObservedGeneration: o.Generation, Message: message,
		})
	}
	return !now.Before(ends)
}

// warnsAt is when a cluster warns that it will be deleted.
func warnsAt(began, ends time.Time) time.Time { return ends.Add(-min(ends.Sub(began)/10, maxWarning)) }

// nextLook is when time itself changes something of a Cluster, the zero time for never.
func nextLook(o *v1alpha1.Cluster) (next time.Time) {
	if wake := o.Status.NextWake; wake != nil {
		next = wake.Time
	}
	if o.Status.Expires == nil {
		return next
	}
	began := o.CreationTimestamp.Time
	if o.Status.ClaimedAt != nil {
		began = o.Status.ClaimedAt.Time
	}
	if apimeta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionExpiring) {
		return earlier(next, o.Status.Expires.Time)
	}
	return earlier(next, warnsAt(began, o.Status.Expires.Time))
}

// expire deletes a Cluster whose time is over.
func (f *Fleet) expire(ctx context.Context, o *v1alpha1.Cluster) error {
	err := f.deleteCluster(ctx, o)
	if err == nil {
		f.event(o, "Normal", "Expired", "The cluster was deleted at the end of its TTL.")
	}
	return err
}

// deleteCluster deletes a Cluster as it was read.
func (f *Fleet) deleteCluster(ctx context.Context, o *v1alpha1.Cluster) error {
	only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}}
	err := f.client.Delete().Namespace(o.Namespace).Resource(resource).Name(o.Name).Body(only).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
