package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

const (
	namespaceWorkers = 10
	namespacePeriod  = 5 * time.Minute
)

// buildNamespace builds the controller that empties namespaces. It starts five seconds after a namespace's deletion, as
// upstream's does, so that every replica's admission has seen it.
func buildNamespace(ctx context.Context, e *environment, c clients) (func(context.Context), error) {
	metadataClient, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make its client for metadata: %w", err)
	}
	controller := namespace.NewNamespaceController(ctx, c, metadataClient, c.Discovery().ServerPreferredNamespacedResources,
		e.shared.Core().V1().Namespaces(), namespacePeriod, corev1.FinalizerKubernetes)
	return func(ctx context.Context) { controller.Run(ctx, namespaceWorkers) }, nil
}
