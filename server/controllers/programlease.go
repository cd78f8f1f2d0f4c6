package controllers

import (
	"context"
	"reflect"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

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
func followProgram(ctx context.Context, client kubernetes.Interface, program string) <-chan string {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, program).String()
		}))
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
		factory.Start(ctx.Done())
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
