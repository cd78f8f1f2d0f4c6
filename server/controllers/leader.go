package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
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

// watchedLock is a Lease that tells when another server is read to hold it.
type watchedLock struct {
	resourcelock.Interface
	taken func()
}

func (l watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() {
		l.taken()
	}
	return record, raw, err
}

// lead waits for leadership and runs the controllers until it is lost or ctx ends.
func lead(ctx context.Context, c Config, lock resourcelock.Interface) error {
	// Leadership outlives ctx, until the controllers have stopped.
	electing, resign := context.WithCancel(context.WithoutCancel(ctx))
	acquired := make(chan context.Context)
	var (
		elector *leaderelection.LeaderElector
		err     error
	)
	// A process that was paused finds that another leads. The elector alone would let this one lead, too, until renewDeadline.
	watched := watchedLock{lock, func() {
		if elector.IsLeader() {
			resign()
		}
	}}
	// Without ReleaseOnCancel: that releases the Lease before it ends the context of the leader, which may take another
	// renewDeadline, and even if another server holds the Lease by then.
	elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName, Lock: watched,
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

// Separate programs that run the same controllers. While active, each renews the Lease with its name in kube-system, unless it has
// another --leader-elect-resource-name or runs with --leader-elect=false.
const (
	managerProgram   = "kube-controller-manager"
	schedulerProgram = "kube-scheduler"
)

// programLeaseDuration is the duration, in seconds, of a Lease that specifies none.
const programLeaseDuration = 15

// followProgram sends the holder of the program's Lease, first the current one and then each change; "" means that the program is
// not active. The channel is closed when ctx has ended and everything has stopped.
//
// As in client-go's leader election, a Lease is held until it has not changed for its duration, by the observer's clock: the times
// in it are from another machine's clock.
func followProgram(ctx context.Context, c Config, client kubernetes.Interface, program string) <-chan string {
	factory := c.selected(client, fields.AndSelectors(
		fields.OneTermEqualSelector("metadata.namespace", metav1.NamespaceSystem), fields.OneTermEqualSelector(metav1.ObjectNameField, program)))
	informer := factory.Coordination().V1().Leases().Informer()
	changed := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	holders := make(chan string)
	go func() {
		defer close(holders)
		defer factory.Shutdown()
		// It fails only for stopped informers.
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: notify, DeleteFunc: notify, UpdateFunc: func(_, lease any) { notify(lease) },
		})
		factory.StartWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return
		}
		var seen observedLease
		for last, sent := "", false; ctx.Err() == nil; {
			var spec coordinationv1.LeaseSpec
			if item, ok, _ := informer.GetStore().GetByKey(metav1.NamespaceSystem + "/" + program); ok {
				spec = item.(*coordinationv1.Lease).Spec
			}
			holder, left := seen.holder(spec, time.Now())
			if !sent || holder != last {
				select {
				case holders <- holder:
					last, sent = holder, true
				case <-ctx.Done():
					return
				}
			}
			expiry := make(<-chan time.Time)
			if holder != "" {
				expiry = time.After(left)
			}
			select {
			case <-changed:
			case <-expiry:
			case <-ctx.Done():
			}
		}
	}()
	return holders
}

// observedLease is the last seen state of a Lease, and when it was first seen.
type observedLease struct {
	spec  coordinationv1.LeaseSpec
	since time.Time
}

// holder returns the holder of a Lease that is seen as spec at a time, and how long it will hold the Lease unless it changes.
func (o *observedLease) holder(spec coordinationv1.LeaseSpec, at time.Time) (name string, left time.Duration) {
	if o.since.IsZero() || !reflect.DeepEqual(o.spec, spec) {
		o.spec, o.since = spec, at
	}
	duration := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, programLeaseDuration)) * time.Second
	left = o.since.Add(duration).Sub(at)
	if left <= 0 {
		return "", 0
	}
	return ptr.Deref(spec.HolderIdentity, ""), left
}

// as returns the configuration of clients that act as the service account of that name in kube-system, to which the bootstrap roles
// grant what the controller needs; or as kube-controller-manager, if the name is empty. With --use-service-account-credentials=false
// they act as the server itself.
//
// The transport states the user, so no token is signed and the service accounts need not exist. They do not: nobody else can become
// a controller by asking for its token.
func (c Config) as(account string) *rest.Config {
	switch {
	case !c.Settings.KubeCloudShared.UseServiceAccountCredentials:
		return c.Loopback
	case account == "":
		return c.LoopbackOf(user.KubeControllerManager)
	}
	return c.LoopbackOf(serviceaccount.MakeUsername(metav1.NamespaceSystem, account), serviceaccount.MakeGroupNames(metav1.NamespaceSystem)...)
}
