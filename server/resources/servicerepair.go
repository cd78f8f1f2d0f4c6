package resources

import (
	"context"
	"math"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	ipcontroller "k8s.io/kubernetes/pkg/registry/core/service/ipallocator/controller"
	portcontroller "k8s.io/kubernetes/pkg/registry/core/service/portallocator/controller"
)

// repairInterval is how often allocations are compared with Services, like upstream.
const repairInterval = 3 * time.Minute

// followInterval is how often to check whether the allocators have processed the ServiceCIDRs; there is no notification.
const followInterval = 5 * time.Millisecond

// firstRetry is how soon a failed first pass is retried. If it keeps failing, the pause doubles up to lastRetry, since each try of
// upstream's loop for addresses leaves event handlers behind.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// ServiceRepair keeps the allocated cluster IPs and node ports in sync with the Services that use them: it creates missing
// allocations and frees leaked ones. kube-apiserver runs it as the post-start hook start-service-ip-repair-controllers.
type ServiceRepair struct {
	loops  []loop
	follow func() (bool, error)
}

// loop makes passes until stop is closed, and calls onFirstSuccess after the first successful one.
type loop func(onFirstSuccess func(), stop chan struct{})

// newServiceRepair makes the repair loops of the allocators.
func newServiceRepair(services Services, every time.Duration, client kubernetes.Interface, factory informers.SharedInformerFactory, allocators *serviceAllocators) *ServiceRepair {
	cidrs := factory.Networking().V1().ServiceCIDRs()
	addresses := func() loop {
		return ipcontroller.NewRepairIPAddress(every, client,
			factory.Core().V1().Services(), cidrs, currentAddresses{factory.Networking().V1().IPAddresses(), client}).RunUntil
	}
	ports := func(interval time.Duration) loop {
		return portcontroller.NewRepair(interval, client.CoreV1(), client.EventsV1(), services.NodePorts, allocators.portRange).RunUntil
	}
	repair := &ServiceRepair{
		loops:  []loop{retryFirstPass(ports, firstRetry, every)},
		follow: func() (bool, error) { return true, nil },
	}
	if addressObjects() {
		repair.loops = append(repair.loops, restartAfterFailure(addresses, firstRetry))
		repair.follow = func() (bool, error) { return allocators.follow(cidrs.Lister()) }
	}
	if AddressBitmaps() { // also beside objects, where upstream leaves an older bitmap as it is
		repair.loops = append(repair.loops, retryFirstPass(func(interval time.Duration) loop {
			return ipcontroller.NewRepair(interval, client.CoreV1(), client.EventsV1(),
				&services.IPRange, allocators.ipRange, &services.SecondaryIPRange, allocators.secondaryIPRange).RunUntil
		}, firstRetry, every))
	}
	return repair
}

// currentAddresses is the informer of IPAddresses, whose lister asks the server for one that the informer does not have. The event of a
// Service may arrive before that of its address, which is older.
type currentAddresses struct {
	networkinginformers.IPAddressInformer
	client kubernetes.Interface
}

// Lister implements networkinginformers.IPAddressInformer.
func (a currentAddresses) Lister() networkinglisters.IPAddressLister {
	return currentAddressLister{a.IPAddressInformer.Lister(), a.client}
}

type currentAddressLister struct {
	networkinglisters.IPAddressLister
	client kubernetes.Interface
}

// Get implements networkinglisters.IPAddressLister.
func (l currentAddressLister) Get(name string) (*networkingv1.IPAddress, error) {
	address, err := l.IPAddressLister.Get(name)
	if apierrors.IsNotFound(err) {
		return l.client.NetworkingV1().IPAddresses().Get(context.Background(), name, metav1.GetOptions{})
	}
	return address, err
}

// restartAfterFailure returns a loop that runs newLoop's, and another one if that ends because its first pass failed, as upstream's for
// addresses does.
func restartAfterFailure(newLoop func() loop, pause time.Duration) loop {
	next := newLoop() // not later, since it registers informers
	return func(onFirstSuccess func(), stop chan struct{}) {
		next(onFirstSuccess, stop)
		pauses := wait.Backoff{Duration: pause, Factor: 2, Cap: lastRetry, Steps: math.MaxInt32}.DelayFunc()
		_ = pauses.Until(wait.ContextForChannel(stop), false, true, func(context.Context) (bool, error) {
			newLoop()(onFirstSuccess, stop)
			return false, nil
		}) // ends with stop
	}
}

// retryFirstPass returns a loop that runs newLoop's, but retries a failed first pass soon. Upstream's loop for ports would wait a
// whole interval.
func retryFirstPass(newLoop func(interval time.Duration) loop, pause, interval time.Duration) loop {
	return func(onFirstSuccess func(), stop chan struct{}) {
		first := make(chan struct{})
		end := sync.OnceFunc(func() { close(first) })
		defer context.AfterFunc(wait.ContextForChannel(stop), end)()
		newLoop(pause)(func() { onFirstSuccess(); end() }, first)
		select {
		case <-stop:
		case <-time.After(interval):
			newLoop(interval)(func() {}, stop)
		}
	}
}

// Run repairs until ctx ends and returns when every loop has ended. It calls ready once each loop has succeeded for the first time
// and addresses can be allocated. Before that, Services are rejected, so the server must not be ready.
func (r *ServiceRepair) Run(ctx context.Context, ready func()) {
	stop := make(chan struct{}) // the loops take a bidirectional channel, so ctx.Done() won't do
	context.AfterFunc(ctx, func() { close(stop) })

	succeeded := make(chan struct{}, len(r.loops))
	var running sync.WaitGroup
	for _, loop := range r.loops {
		running.Go(func() { loop(func() { succeeded <- struct{}{} }, stop) })
	}
	running.Go(func() {
		for range r.loops {
			select {
			case <-succeeded:
			case <-ctx.Done():
				return
			}
		}
		following := func(context.Context) (bool, error) { return r.follow() }
		if err := wait.PollUntilContextCancel(ctx, followInterval, true, following); err == nil {
			ready()
		} else if ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Service addresses can't be allocated")
		}
	})
	running.Wait()
}
