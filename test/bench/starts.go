package main

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// podStarts watches all Pods and times their starts as in Kubernetes' SLO: from their creation until a watch reports them
// Running. A creationTimestamp has whole seconds, so a start seems to take up to a second longer than it does. A Pod that is
// deleted before it runs counts with its age.
type podStarts struct {
	factory informers.SharedInformerFactory

	mu      sync.Mutex
	waiting map[types.UID]time.Time // creation times of those not running yet
	started map[types.UID]struct{}
	times   []time.Duration // since the last take
	after   time.Time       // if not zero, first is closed when a Pod created later runs
	first   chan struct{}
}

// watchStarts watches until the context ends.
func watchStarts(ctx context.Context, c kubernetes.Interface) (*podStarts, error) {
	p := &podStarts{waiting: map[types.UID]time.Time{}, started: map[types.UID]struct{}{}}
	p.factory = informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTransform(func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok { // the informer's store does not need the rest
			pod.ManagedFields, pod.Spec = nil, corev1.PodSpec{}
		}
		return object, nil
	}))
	informer := p.factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: p.see, UpdateFunc: func(_, pod any) { p.see(pod) }, DeleteFunc: p.gone,
	}); err != nil {
		return nil, err
	}
	p.factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("the watch of all pods did not begin")
	}
	return p, nil
}

// stopped waits until the watch has ended.
func (p *podStarts) stopped() {
	if p != nil {
		p.factory.Shutdown()
	}
}

func (p *podStarts) see(object any) {
	pod := object.(*corev1.Pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, started := p.started[pod.UID]; started {
		return
	}
	if pod.Status.Phase != corev1.PodRunning {
		p.waiting[pod.UID] = pod.CreationTimestamp.Time
		return
	}
	delete(p.waiting, pod.UID)
	p.started[pod.UID] = struct{}{}
	p.times = append(p.times, time.Since(pod.CreationTimestamp.Time))
	if p.first != nil && pod.CreationTimestamp.After(p.after) {
		close(p.first)
		p.first = nil
	}
}

func (p *podStarts) gone(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if created, waits := p.waiting[pod.UID]; waits {
		p.times = append(p.times, time.Since(created))
	}
	delete(p.waiting, pod.UID)
	delete(p.started, pod.UID)
}

// counts returns how many Pods are running, and how many exist that are not.
func (p *podStarts) counts() (running, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.started), len(p.waiting)
}

// take returns the durations of starts since the last call.
func (p *podStarts) take() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := p.times
	p.times = nil
	return times
}

// firstAfter returns a channel that is closed when a Pod created after the time runs.
func (p *podStarts) firstAfter(after time.Time) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after, p.first = after, make(chan struct{})
	return p.first
}
