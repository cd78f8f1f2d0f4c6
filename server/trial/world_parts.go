package trial

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// parts simulates what acts on a cluster from outside of its control plane, and is not in the copy: what provides volumes, and what gives Services
// of type LoadBalancer their addresses.
type parts struct {
	volumes  kubernetes.Interface // as what provides volumes
	services kubernetes.Interface // as what balances load

	shared informers.SharedInformerFactory
	queue  workqueue.TypedInterface[part]
	given  int // addresses of Services
}

// part is an object that may need something.
type part struct{ resource, namespace, name string }

// simulate starts the parts, until ctx ends.
func (w *world) simulate(ctx context.Context) error {
	volumes, err := kubernetes.NewForConfig(w.as("volumes"))
	if err != nil {
		return err
	}
	services, err := kubernetes.NewForConfig(w.as("load-balancer"))
	if err != nil {
		return err
	}
	p := &parts{volumes: volumes, services: services, queue: workqueue.NewTyped[part](), shared: informers.NewSharedInformerFactory(w.client, 0)}
	core, storage := p.shared.Core().V1(), p.shared.Storage().V1()
	watched := map[string]cache.SharedIndexInformer{
		"claims": core.PersistentVolumeClaims().Informer(), "volumes": core.PersistentVolumes().Informer(),
		"attachments": storage.VolumeAttachments().Informer(), "services": core.Services().Informer(),
	}
	for resource, informer := range watched {
		add := func(object any) {
			if key, err := cache.ObjectToName(object); err == nil {
				time.AfterFunc(partDelay, func() { p.queue.Add(part{resource, key.Namespace, key.Name}) })
			}
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, object any) { add(object) }}); err != nil {
			return err
		}
	}
	storage.StorageClasses().Informer()
	storage.CSINodes().Informer()
	core.Nodes().Informer()
	p.shared.Start(ctx.Done())
	for resource, synced := range p.shared.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return errors.New("reading " + resource.Name() + " for the simulation did not end")
		}
	}
	go p.run(ctx)
	return nil
}

const (
	partDelay = time.Second     // what is outside of a cluster answers later than its controllers
	partRetry = 5 * time.Second // until what has failed is tried again
)

func (p *parts) run(ctx context.Context) {
	context.AfterFunc(ctx, p.queue.ShutDown)
	for {
		next, ended := p.queue.Get()
		if ended {
			return
		}
		p.queue.Done(next)
		if err := p.sync(ctx, next); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			time.AfterFunc(partRetry, func() { p.queue.Add(next) })
		}
	}
}

func (p *parts) sync(ctx context.Context, of part) error {
	core, storage := p.shared.Core().V1(), p.shared.Storage().V1()
	switch of.resource {
	case "claims":
		return with(p.claim)(ctx)(core.PersistentVolumeClaims().Lister().PersistentVolumeClaims(of.namespace).Get(of.name))
	case "volumes":
		return with(p.volume)(ctx)(core.PersistentVolumes().Lister().Get(of.name))
	case "attachments":
		return with(p.attachment)(ctx)(storage.VolumeAttachments().Lister().Get(of.name))
	default:
		return with(p.service)(ctx)(core.Services().Lister().Services(of.namespace).Get(of.name))
	}
}

// with calls a function with what a lister has found.
func with[T *corev1.PersistentVolumeClaim | *corev1.PersistentVolume | *storagev1.VolumeAttachment | *corev1.Service](
	do func(context.Context, T) error,
) func(context.Context) func(T, error) error {
	return func(ctx context.Context) func(T, error) error {
		return func(found T, err error) error {
			if err != nil {
				return err
			}
			return do(ctx, found)
		}
	}
}
