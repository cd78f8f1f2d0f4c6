package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaseName is the Lease in kube-system of the server that runs the controllers.
const leaseName = "sqube-controllers"

// How fast leadership moves. A dead leader is replaced after at most leaseDuration and retryPeriod. A leader that can't renew its
// Lease stops its controllers after renewDeadline, before another server may start them.
const (
	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

// RunAsLeader runs the controllers whenever this server holds the Lease, until ctx ends. id identifies the server. It then
// releases the Lease, so that another server can acquire it at once, and returns nil, or the error of Run.
func RunAsLeader(ctx context.Context, c Config, id string) error {
	clients, err := newClients(c.Loopback, "leader-election")
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: leaseName},
		Client:     clients.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: id},
	}
	for ctx.Err() == nil {
		if err := lead(ctx, c, lock); err != nil {
			return err
		}
	}
	return nil
}

// lead waits for leadership and runs the controllers until it is lost or ctx ends.
func lead(ctx context.Context, c Config, lock resourcelock.Interface) error {
	// Leadership outlives ctx, until the controllers have stopped.
	electing, resign := context.WithCancel(context.WithoutCancel(ctx))
	acquired := make(chan context.Context)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName, Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				select {
				case acquired <- leading:
				case <-electing.Done():
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		resign()
		return fmt.Errorf("election of the controllers' leader: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(electing)
	}()
	defer func() {
		resign()
		<-ended
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-ended:
		return nil
	case leading := <-acquired:
		run, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(leading, cancel)()
		err := Run(run, c)
		if leading.Err() != nil && ctx.Err() == nil {
			slog.Warn("the controllers have stopped here: this server has lost its Lease", "lease", leaseName)
		}
		return err
	}
}
