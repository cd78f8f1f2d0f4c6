package server

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
)

// The objects of a resource are counted again after a minute, as upstream, or sooner where that costs little: a list is
// weighed by what was counted last.
const (
	maxCountInterval = time.Minute
	minCountInterval = 5 * time.Second
	// countDutyCycle bounds the time that counting takes to a part of all time.
	countDutyCycle = 200
)

// objectCountMetric is a metric of kube-apiserver. It is -1 where counting fails.
var objectCountMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name:           "apiserver_resource_objects",
	Help:           "Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "resource"})

// sizes counts the objects of each resource: for the metrics, and for priority and fairness, to which a list costs as much
// as it has to read.
type objectCounter struct {
	tracker flowcontrolrequest.StorageObjectCountTracker

	mu       sync.Mutex
	storages map[schema.GroupResource]storage.Interface
}

func newObjectCounter() *objectCounter {
	return &objectCounter{tracker: flowcontrolrequest.NewStorageObjectCountTracker(), storages: map[schema.GroupResource]storage.Interface{}}
}

// of makes storages with next, whose objects are counted.
func (s *objectCounter) decorate(next generic.StorageDecorator) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), object, list func() runtime.Object,
		attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *toolscache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		made, destroy, err := next(config, prefix, key, object, list, attributes, trigger, indexers)
		if err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.storages[config.GroupResource] != made {
			s.storages[config.GroupResource] = made
			if err := made.EnableResourceSizeEstimation(noKeys); err != nil {
				return nil, nil, err
			}
		}
		return made, func() {
			s.forget(config.GroupResource, made)
			destroy()
		}, nil
	}
}

// noKeys lists the keys of a storage to which the database tells sizes without it.
func noKeys(context.Context) ([]string, error) { return nil, nil }

// forget ends the counting of a resource, unless it has another storage by now: that of a definition that changed.
func (s *objectCounter) forget(resource schema.GroupResource, made storage.Interface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.storages[resource] == made {
		delete(s.storages, resource)
		objectCountMetric.DeleteLabelValues(resource.Group, resource.Resource)
	}
}

// run counts until ctx ends.
func (s *objectCounter) run(ctx context.Context) {
	go s.tracker.RunUntil(ctx.Done())
	ticker := time.NewTicker(minCountInterval)
	defer ticker.Stop()
	var due map[schema.GroupResource]time.Time
	for {
		next := map[schema.GroupResource]time.Time{}
		s.mu.Lock()
		storages := maps.Clone(s.storages)
		s.mu.Unlock()
		for resource, made := range storages {
			began := time.Now()
			if began.Before(due[resource]) {
				next[resource] = due[resource]
				continue
			}
			stats, err := made.Stats(ctx)
			next[resource] = time.Now().Add(min(maxCountInterval, max(minCountInterval, countDutyCycle*time.Since(began))))
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				stats.ObjectCount = -1
			} else {
				s.tracker.Set(resource.String(), stats)
			}
			objectCountMetric.WithLabelValues(resource.Group, resource.Resource).Set(float64(stats.ObjectCount))
		}
		due = next
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
