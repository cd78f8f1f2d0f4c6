package bootstrap

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// upkeep keeps one object as one of upstream's controllers wants it. The controllers watch the object all the time, each with an informer of its
// own, for what they do once: twenty goroutines. Here a controller runs for a while, and again when the object is no longer as it left it.
type upkeep struct {
	run      func(context.Context)                 // runs the controller until the context ends
	revision func(context.Context) (string, error) // returns the object's resourceVersion, "" if there is none
	interval time.Duration                         // how often to look
	wake     <-chan struct{}                       // receives when to run although the object is as it was; may be nil
}

// episode is how long a controller runs: far longer than it takes to write one object.
const episode = 10 * time.Second

// until keeps the object until ctx ends.
func (u *upkeep) until(ctx context.Context) {
	for ctx.Err() == nil {
		running, cancel := context.WithTimeout(ctx, episode)
		u.run(running)
		cancel()
		u.pause(ctx)
	}
}

// pause returns when the controller has to run again.
func (u *upkeep) pause(ctx context.Context) {
	left, err := u.revision(ctx)
	ticker := time.NewTicker(u.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-u.wake:
			return
		case <-ctx.Done():
			return
		}
		found, failed := u.revision(ctx)
		if failed == nil && (err != nil || found == "" || found != left) {
			return
		}
	}
}

// configMapRevision returns the upkeep.revision of a ConfigMap in kube-system.
func configMapRevision(client kubernetes.Interface, name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		found, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return found.ResourceVersion, nil
	}
}
