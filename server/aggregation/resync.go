package aggregation

import (
	"context"
	"time"

	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"

	"github.com/sqube/sqube/server/informer"
)

// resyncInterval is how often upstream checks whether APIServices are available, even if nothing has changed.
const resyncInterval = 30 * time.Second

// steady is an informer of APIServices that ignores the resync period of handlers, so that it wakes up only when something changes.
type steady struct {
	informers.APIServiceInformer
	handlers []cache.ResourceEventHandler
}

// Informer implements informers.APIServiceInformer.
func (s *steady) Informer() cache.SharedIndexInformer {
	shared := s.APIServiceInformer.Informer()
	return informer.Adding{SharedIndexInformer: shared, Add: func(h cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
		s.handlers = append(s.handlers, h)
		return shared.AddEventHandler(h)
	}}
}

// resync gives the handlers all APIServices again and again, until ctx ends.
func (s *steady) resync(ctx context.Context) {
	utilwait.UntilWithContext(ctx, func(context.Context) {
		for _, service := range s.APIServiceInformer.Informer().GetStore().List() {
			for _, h := range s.handlers {
				h.OnUpdate(service, service)
			}
		}
	}, resyncInterval)
}
