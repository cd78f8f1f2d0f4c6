package controllers

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// quotaPatience is how long the quota controller waits for the informer of a resource. Upstream's controller counts nothing until all
// informers have synced, so one aggregated API that never completes a list stops all quotas. Here the controller goes on, and keeps the usage
// of that resource as it is.
const quotaPatience = 5 * time.Second

// quotaInformers are the informers of the quota controller.
type quotaInformers struct{ *metadataInformers }

// ForResource returns the informer for the resource.
func (q quotaInformers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := q.metadataInformers.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	return awaitedGeneric{informer}, nil
}

type awaitedGeneric struct{ informers.GenericInformer }

// Informer returns the informer. Its HasSynced is unchanged, so the lister of a resource that has not synced returns an error.
func (a awaitedGeneric) Informer() cache.SharedIndexInformer {
	return awaitedInformer{a.GenericInformer.Informer()}
}

type awaitedInformer struct{ cache.SharedIndexInformer }

// GetController returns a controller for which the quota controller waits a while.
func (a awaitedInformer) GetController() cache.Controller {
	return &awaitedController{Controller: a.SharedIndexInformer.GetController()}
}

type awaitedController struct {
	cache.Controller
	late atomic.Bool
}

// HasSynced reports whether the informer has synced, or has had its time.
func (a *awaitedController) HasSynced() bool { return a.Controller.HasSynced() || a.late.Load() }

// Run runs the informer until stop closes.
func (a *awaitedController) Run(stop <-chan struct{}) {
	time.AfterFunc(quotaPatience, func() { a.late.Store(true) })
	a.Controller.Run(stop)
}

// RunWithContext runs the informer until ctx ends.
func (a *awaitedController) RunWithContext(ctx context.Context) { a.Run(ctx.Done()) }
