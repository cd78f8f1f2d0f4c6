package server

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/component-base/metrics"

	"github.com/sqube/sqube/server/decorate"
)

// Objects are counted again after a minute, like upstream, or sooner if counting is cheap: priority and fairness weighs a list
// by the last count.
const (
	maxCountInterval = time.Minute
	minCountInterval = 5 * time.Second
	// countPause is how long counting pauses, as a multiple of the time that it took.
	countPause = 200
)

// objectCountMetric is one of kube-apiserver's metrics: -1 if counting fails.
var objectCountMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name:           "apiserver_resource_objects",
	Help:           "Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "resource"})

// objectCounter counts the objects of each resource, for the metrics and for priority and fairness, which weighs a list by the
// number of objects that it reads.
type objectCounter struct {
	tracker flowcontrolrequest.StorageObjectCountTracker

	mu       sync.Mutex
	storages map[schema.GroupResource]storage.Interface
}

func newObjectCounter() *objectCounter {
	return &objectCounter{tracker: flowcontrolrequest.NewStorageObjectCountTracker(), storages: map[schema.GroupResource]storage.Interface{}}
}

// decorate returns a decorator that makes storages with next and counts their objects.
func (c *objectCounter) decorate(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Storage(next, func(resource schema.GroupResource, made storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.storages[resource] != made {
			c.storages[resource] = made
			if err := made.EnableResourceSizeEstimation(noKeys); err != nil {
				return nil, nil, err
			}
		}
		return made, func() {
			c.forget(resource, made)
			destroy()
		}, nil
	})
}

// has reports whether the objects of a resource are stored under its own name.
func (c *objectCounter) has(resource schema.GroupResource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, found := c.storages[resource]
	return found
}

// noKeys stands in for the list of keys from which upstream estimates sizes; the store measures them itself.
func noKeys(context.Context) ([]string, error) { return nil, nil }

// forget stops counting a resource, unless it has a new storage by now because its definition changed.
func (c *objectCounter) forget(resource schema.GroupResource, made storage.Interface) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.storages[resource] == made {
		delete(c.storages, resource)
		objectCountMetric.DeleteLabelValues(resource.Group, resource.Resource)
	}
}

// report sets the metric of a resource, unless it was forgotten while its objects were counted.
func (c *objectCounter) report(resource schema.GroupResource, made storage.Interface, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.storages[resource] == made {
		objectCountMetric.WithLabelValues(resource.Group, resource.Resource).Set(float64(n))
	}
}

// run counts until ctx ends.
func (c *objectCounter) run(ctx context.Context) {
	go c.tracker.RunUntil(ctx.Done())
	ticker := time.NewTicker(minCountInterval)
	defer ticker.Stop()
	var due map[schema.GroupResource]time.Time
	for {
		next := map[schema.GroupResource]time.Time{}
		c.mu.Lock()
		storages := maps.Clone(c.storages)
		c.mu.Unlock()
		for resource, made := range storages {
			began := time.Now()
			if began.Before(due[resource]) {
				next[resource] = due[resource]
				continue
			}
			stats, err := made.Stats(ctx)
			next[resource] = time.Now().Add(min(maxCountInterval, max(minCountInterval, countPause*time.Since(began))))
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				stats.ObjectCount = -1
			} else {
				c.tracker.Set(resource.String(), stats)
			}
			c.report(resource, made, stats.ObjectCount)
		}
		due = next
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
