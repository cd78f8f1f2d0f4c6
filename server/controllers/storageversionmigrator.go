package controllers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/storageversionmigrator"
)

// buildStorageVersionMigrator builds the controllers that rewrite objects for a StorageVersionMigration, in the current storage
// version and with the current encryption key (KEP-4192). They read the objects from the garbage collector's informers, so the
// collector must be built first.
func buildStorageVersionMigrator(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	dynamicClient, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make its dynamic client: %w", err)
	}
	metadataClient, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make its client for metadata: %w", err)
	}
	definitionClient, err := clientset.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make its client for custom resource definitions: %w", err)
	}
	migrations := s.shared.Storagemigration().V1beta1().StorageVersionMigrations()
	const name = "storage-version-migrator-controller" // also the field manager
	migrator := storageversionmigrator.NewSVMController(ctx, c, dynamicClient, migrations, name, s.mapper, s.graph)
	versions := storageversionmigrator.NewResourceVersionController(ctx, c, c.Discovery(), metadataClient, migrations, s.mapper)
	runner := storageversionmigrator.NewCustomResourceController(ctx, c, migrations, definitionClient.ApiextensionsV1().CustomResourceDefinitions())
	return func(ctx context.Context) {
		var running sync.WaitGroup
		for _, run := range []func(context.Context){migrator.Run, versions.Run, runner.Run} {
			running.Go(func() { run(ctx) })
		}
		running.Wait()
	}, nil
}
