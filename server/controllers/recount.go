package controllers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/informer"
)

// recountAfter is how long after the last change of a quota's usage its objects are counted again. Admission adds to the usage of one quota
// after the other, before an object is stored. If the object is then refused, by another quota or because its name exists, upstream
// counts again when an object is deleted, or after five minutes. What was added last must be stored by then.
const recountAfter = 5 * time.Second

// recountedQuotas is the informer of quotas for the controller that counts. A quota whose usage has changed is added to it again, which lets
// it count the objects and write the quota if the usage differs.
type recountedQuotas struct {
	coreinformers.ResourceQuotaInformer
}

// Informer returns the informer.
func (r recountedQuotas) Informer() cache.SharedIndexInformer {
	shared := r.ResourceQuotaInformer.Informer()
	add := func(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
		return shared.AddEventHandlerWithOptions(&recounting{ResourceEventHandler: h, pending: map[string]*time.Timer{}}, options)
	}
	return informer.Adding{SharedIndexInformer: shared, Add: add}
}

type recounting struct {
	cache.ResourceEventHandler
	mu      sync.Mutex
	pending map[string]*time.Timer // by the quota's key
}

// OnUpdate passes the update on, and adds the quota again once its usage stays the same.
func (r *recounting) OnUpdate(before, after any) {
	r.ResourceEventHandler.OnUpdate(before, after)
	was, is := before.(*corev1.ResourceQuota), after.(*corev1.ResourceQuota)
	if quota.Equals(was.Status.Used, is.Status.Used) {
		return
	}
	key := is.Namespace + "/" + is.Name
	r.mu.Lock()
	defer r.mu.Unlock()
	if timer, ok := r.pending[key]; ok {
		timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(recountAfter, func() {
		r.mu.Lock()
		if r.pending[key] == timer {
			delete(r.pending, key)
		}
		r.mu.Unlock()
		r.ResourceEventHandler.OnAdd(is, false)
	})
	r.pending[key] = timer
}
