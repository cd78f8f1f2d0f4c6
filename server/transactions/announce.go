package transactions

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/server/changes"
)

// announced is how long the Event of a transaction may take to be written.
const announced = 10 * time.Second

// announce writes an Event about the state of a transaction that must be confirmed, without waiting for it.
func (r *REST) announce(name string, s Status) {
	reason, kind, message := string(s.State), corev1.EventTypeNormal, ""
	switch s.State {
	case AwaitsConfirmation:
		message = fmt.Sprintf("%s has written %d objects: they are taken back at %s unless somebody confirms it", s.User, len(s.Operations), s.Deadline.UTC().Format(time.RFC3339))
	case Confirmed:
		message = "confirmed by " + s.ConfirmedBy
	case TakenBack:
		kind, message = corev1.EventTypeWarning, fmt.Sprintf("taken back by the transaction %s: %s", s.TakenBackBy, s.Message)
		if len(s.Left) > 0 {
			message += fmt.Sprintf("; of %d objects something was left", len(s.Left))
		}
	case TakingBackFailed:
		reason, kind, message = "TakeBackFailed", corev1.EventTypeWarning, s.Message
	}
	const most = 1024 // bytes of a message
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "transaction-", Namespace: metav1.NamespaceDefault}, // as of all objects without a namespace
		InvolvedObject: corev1.ObjectReference{
			APIVersion: changes.GroupVersion.String(), Kind: kindName, Name: name, UID: types.UID(s.AuditID),
		},
		Reason: reason, Type: kind, Message: message[:min(len(message), most)], Source: corev1.EventSource{Component: "sqube"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), announced)
		defer cancel()
		if _, err := r.Client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
			klog.ErrorS(err, "The Event about a transaction could not be written", "transaction", name, "state", s.State)
		}
	}()
}
