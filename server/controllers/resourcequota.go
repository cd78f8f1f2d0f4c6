package controllers

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/quota/v1/generic"
	pkgcontroller "k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
)

// buildResourceQuota builds the controller that counts what quotas limit. (Admission refuses what exceeds them.)
func buildResourceQuota(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	settings := s.config.Settings.ResourceQuotaController
	lister := generic.ListerFuncForResourceFunc(s.metadata.ForResource)
	configuration, err := quotainstall.NewQuotaConfigurationForControllers(lister, s.shared)
	if err != nil {
		return nil, err
	}
	discover := c.Discovery().ServerPreferredNamespacedResources
	quota, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               c.CoreV1(),
		ResourceQuotaInformer:     s.shared.Core().V1().ResourceQuotas(),
		ResyncPeriod:              pkgcontroller.StaticResyncPeriodFunc(settings.ResourceQuotaSyncPeriod.Duration),
		InformerFactory:           s.metadata,
		ReplenishmentResyncPeriod: replenishmentPeriod,
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      configuration.IgnoredResources,
		InformersStarted:          s.started,
		Registry:                  generic.NewRegistry(configuration.Evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, err
	}
	changed := s.resources.subscribe()
	return func(ctx context.Context) {
		var running sync.WaitGroup
		running.Go(func() { quota.Run(ctx, int(settings.ConcurrentResourceQuotaSyncs)) })
		running.Go(func() {
			again(ctx, changed, func(ctx context.Context) { quota.Sync(ctx, discover, resourcesPeriod) })
		})
		running.Wait()
	}, nil
}

// replenishmentPeriod is upstream's 12 hours to a day, spread so that resources do not come due together.
func replenishmentPeriod() time.Duration {
	return time.Duration((1 + rand.Float64()) * float64(12*time.Hour))
}
