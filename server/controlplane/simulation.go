package controlplane

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/coordination"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/scale"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"github.com/sqube/sqube/server/controllers"
)

// Simulation is what a control plane in a bubble of testing/synctest is told about the cluster instead of asking for it.
type Simulation struct {
	// Alive reports whether a node lives, which need not renew its Lease then.
	Alive func(node string) bool
	// Metrics returns what HorizontalPodAutoscalers are told instead of metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io.
	Metrics func(informers.SharedInformerFactory) metrics.MetricsClient
}

// heartbeats are shared informers for the controller of nodes' lives, in which living nodes have renewed their Leases just now.
type heartbeats struct {
	informers.SharedInformerFactory
	alive func(node string) bool
}

func (h heartbeats) Coordination() coordination.Interface {
	return heartbeatsGroup{h.SharedInformerFactory.Coordination(), h.alive}
}

type heartbeatsGroup struct {
	coordination.Interface
	alive func(node string) bool
}

func (g heartbeatsGroup) V1() coordinationinformers.Interface {
	return heartbeatsV1{g.Interface.V1(), g.alive}
}

type heartbeatsV1 struct {
	coordinationinformers.Interface
	alive func(node string) bool
}

func (v heartbeatsV1) Leases() coordinationinformers.TypedLeaseInformer {
	return renewed{v.Interface.Leases(), v.alive}
}

type renewed struct {
	coordinationinformers.TypedLeaseInformer
	alive func(node string) bool
}

func (r renewed) Lister() coordinationlisters.LeaseLister {
	return renewedLister{r.TypedLeaseInformer.Lister(), r.alive}
}

type renewedLister struct {
	coordinationlisters.LeaseLister
	alive func(node string) bool
}

func (l renewedLister) Leases(namespace string) coordinationlisters.LeaseNamespaceLister {
	if namespace != corev1.NamespaceNodeLease {
		return l.LeaseLister.Leases(namespace)
	}
	return renewedLeases{l.LeaseLister.Leases(namespace), l.alive}
}

type renewedLeases struct {
	coordinationlisters.LeaseNamespaceLister
	alive func(node string) bool
}

// Get returns the Lease of a node.
func (l renewedLeases) Get(node string) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseNamespaceLister.Get(node)
	if err != nil || !l.alive(node) {
		return lease, err
	}
	renewed := *lease // with its resourceVersion, which the controller compares before it believes that a node has failed
	renewed.Spec.RenewTime = new(metav1.NowMicro())
	return &renewed, nil
}

// buildAutoscaler returns upstream's controller, with other metrics.
func (o *Options) buildAutoscaler(ctx context.Context, shared controllers.Shared) (func(context.Context), error) {
	config := shared.As("horizontal-pod-autoscaler")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	scales, err := scale.NewForConfig(config, shared.Kinds, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, err
	}
	settings := o.manager.HPAController
	controller := podautoscaler.NewHorizontalController(ctx, client.CoreV1(), scales, client.AutoscalingV2(), shared.Kinds,
		o.simulation.Metrics(shared.Informers),
		shared.Informers.Autoscaling().V2().HorizontalPodAutoscalers(), shared.Informers.Core().V1().Pods(),
		settings.HorizontalPodAutoscalerSyncPeriod.Duration, settings.HorizontalPodAutoscalerDownscaleStabilizationWindow.Duration,
		settings.HorizontalPodAutoscalerTolerance, settings.HorizontalPodAutoscalerCPUInitializationPeriod.Duration,
		settings.HorizontalPodAutoscalerInitialReadinessDelay.Duration)
	return func(ctx context.Context) { controller.Run(ctx, int(settings.ConcurrentHorizontalPodAutoscalerSyncs)) }, nil
}
