package fleet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// maxEvents is how many Events wait to be written. Further ones are dropped: the statuses say the same.
const maxEvents = 1000

// event writes an Event about a Cluster, later.
func (f *Fleet) event(o *v1alpha1.Cluster, kind, reason, message string) {
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: fmt.Sprintf("%s.%x", o.Name, time.Now().UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster", Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		},
		Type: kind, Reason: reason, Message: message, Source: corev1.EventSource{Component: "sqube"}, ReportingController: "sqube.io/fleet",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	select {
	case f.events <- e:
	default:
	}
}

// sendEvents writes Events until ctx ends.
func (f *Fleet) sendEvents(ctx context.Context) {
	for {
		select {
		case e := <-f.events:
			_, _ = f.core.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{}) // its namespace may end
		case <-ctx.Done():
			return
		}
	}
}

// tellOwner writes Events about what a person wants to know of a change of a status.
func (f *Fleet) tellOwner(before, o *v1alpha1.Cluster) {
	was, is := before.Status, o.Status
	if is.Phase == v1alpha1.PhaseFailed && is.Message != was.Message {
		f.event(o, "Warning", "Failed", is.Message)
	}
	if expiring := apimeta.FindStatusCondition(is.Conditions, v1alpha1.ConditionExpiring); expiring != nil && apimeta.FindStatusCondition(was.Conditions, v1alpha1.ConditionExpiring) == nil {
		f.event(o, "Warning", "Expiring", expiring.Message)
	}
}
