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

// Programs that run elsewhere what runs here too. Each renews the Lease of its name in kube-system for as long as it works,
// unless it was given another --leader-elect-resource-name or runs with --leader-elect=false.
const (
	managerProgram   = "kube-controller-manager"
	schedulerProgram = "kube-scheduler"
)

// programLeaseDuration is that of a Lease which names none.
const programLeaseDuration = 15 * time.Second

// followProgram reports whether the program is at work: at first, and each time that this changes. holder is empty if it
// is not. The channel is closed when ctx has ended and all is at rest.
//
// As in client-go's leader election, a Lease is held until it has not changed for its duration, by the clock of who looks
// at it: the times in it are of another machine's.
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
		// It fails for informers that have stopped only.
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: notify, DeleteFunc: notify, UpdateFunc: func(_, lease any) { notify(lease) },
		})
		factory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return
		}
		var seen observedLease
		for last, told := "", false; ctx.Err() == nil; {
			var spec coordinationv1.LeaseSpec
			if item, ok, _ := informer.GetStore().GetByKey(metav1.NamespaceSystem + "/" + program); ok {
				spec = item.(*coordinationv1.Lease).Spec
			}
			holder, left := seen.holder(spec, time.Now())
			if !told || holder != last {
				select {
				case holders <- holder:
					last, told = holder, true
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

// observedLease is a Lease as it was seen last, and when it was first seen so.
type observedLease struct {
	spec  coordinationv1.LeaseSpec
	since time.Time
}

// holder returns who holds the Lease at the time at which it is seen to be spec, and for how long it will, unless it
// changes.
func (o *observedLease) holder(spec coordinationv1.LeaseSpec, at time.Time) (name string, left time.Duration) {
	if o.since.IsZero() || !reflect.DeepEqual(o.spec, spec) {
		o.spec, o.since = spec, at
	}
	duration := programLeaseDuration
	if spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	left = o.since.Add(duration).Sub(at)
	if left <= 0 {
		return "", 0
	}
	return ptr.Deref(spec.HolderIdentity, ""), left
}
