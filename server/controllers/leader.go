package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
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
	loopback := rest.CopyConfig(c.Loopback)
	// Other servers count leaseDuration from when they see a renewal, this one renewDeadline from its response.
	loopback.Timeout = leaseDuration - renewDeadline
	clients, err := newClients(loopback, "leader-election")
	if err != nil {
		return err
	}
	lock := newLock(clients.CoordinationV1(), id)
	for ctx.Err() == nil {
		if err := lead(ctx, c, lock); err != nil {
			return err
		}
	}
	return nil
}

// newLock returns the Lease as it is held by this process. Servers on machines that were given the same name have the same id, and so
// do two that share a port (--permit-port-sharing): with id alone, each would take the other's Lease for its own.
func newLock(client coordinationclient.LeasesGetter, id string) *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: leaseName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: id + "_" + string(uuid.NewUUID())},
	}
}

// lead waits for leadership and runs the controllers until it is lost or ctx ends.
func lead(ctx context.Context, c Config, lock resourcelock.Interface) error {
	// Leadership outlives ctx, until the controllers have stopped.
	electing, resign := context.WithCancel(context.WithoutCancel(ctx))
	acquired := make(chan context.Context)
	// Without ReleaseOnCancel: that releases the Lease before it ends the context of the leader, which may take another
	// renewDeadline, and even if another server holds the Lease by then.
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName, Lock: lock,
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
	lost := false
	defer func() {
		resign()
		<-ended
		if !lost && elector.IsLeader() {
			release(lock)
		}
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
		lost = leading.Err() != nil
		if lost && ctx.Err() == nil {
			slog.Warn("the controllers have stopped here: this server has lost its Lease", "lease", leaseName)
		}
		return err
	}
}

// release gives up the Lease if this server still holds it. The controllers must have stopped.
func release(lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.Background(), renewDeadline)
	defer cancel()
	held, _, err := lock.Get(ctx)
	if err == nil && held.HolderIdentity != lock.Identity() {
		return
	}
	if err == nil {
		now := metav1.Now()
		err = lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now, LeaderTransitions: held.LeaderTransitions,
		})
	}
	if err != nil {
		slog.Warn("the Lease of the controllers could not be released: another server has to wait until it expires", "lease", leaseName, "error", err)
	}
}
