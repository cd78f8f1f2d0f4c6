package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

// buildNamespace builds the controller that empties namespaces. It starts five seconds after a namespace's deletion, as
// upstream's does, so that every replica's admission has seen it.
func buildNamespace(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	settings := s.config.Settings.NamespaceController
	metadataClient, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make its client for metadata: %w", err)
	}
	controller := namespace.NewNamespaceController(ctx, c, metadataClient, c.Discovery().ServerPreferredNamespacedResources,
		s.shared.Core().V1().Namespaces(), settings.NamespaceSyncPeriod.Duration, corev1.FinalizerKubernetes)
	return func(ctx context.Context) { controller.Run(ctx, int(settings.ConcurrentNamespaceSyncs)) }, nil
}
