package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// monitorSyncTimeout is how long the collector waits for all its informers, which it calls monitors, before it starts.
const monitorSyncTimeout = 30 * time.Second

// buildGarbageCollector builds the controller that deletes objects whose owners are gone, and carries out foreground and orphan
// deletion.
func buildGarbageCollector(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	settings := s.config.Settings.GarbageCollectorController
	if !settings.EnableGarbageCollector {
		return nil, nil
	}
	metadataClient, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make its client for metadata: %w", err)
	}
	collector, err := garbagecollector.NewGarbageCollector(ctx, c, metadataClient, s.mapper,
		ignoredResources(settings), s.metadata, s.started)
	if err != nil {
		return nil, err
	}
	s.graph = collector.GetDependencyGraphBuilder()
	changed := s.resources.subscribe()
	return func(ctx context.Context) {
		var running sync.WaitGroup
		running.Go(func() { collector.Run(ctx, int(settings.ConcurrentGCSyncs), monitorSyncTimeout) })
		running.Go(func() {
			again(ctx, changed, func(ctx context.Context) { collector.Sync(ctx, c.Discovery(), resourcesPeriod) })
		})
		running.Wait()
	}, nil
}
