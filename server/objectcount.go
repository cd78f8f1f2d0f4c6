package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

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

// objectCounter counts the objects of each resource, for the metrics and for priority and fairness, which weighs a list by the
// number of objects that it reads.
type objectCounter struct {
	tracker flowcontrolrequest.StorageObjectCountTracker

	mu sync.Mutex
	// storages of a resource in the order in which they were made. A custom resource can have one for requests and one for informers.
	storages map[schema.GroupResource][]storage.Interface
}

func newObjectCounter() *objectCounter {
	return &objectCounter{tracker: flowcontrolrequest.NewStorageObjectCountTracker(), storages: map[schema.GroupResource][]storage.Interface{}}
}

// decorate returns a decorator that makes storages with next and counts their objects.
func (c *objectCounter) decorate(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Storage(next, func(resource schema.GroupResource, made storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Contains(c.storages[resource], made) {
			c.storages[resource] = append(c.storages[resource], made)
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

// forget stops counting a resource, unless it has another storage, such as a new one because its definition changed.
func (c *objectCounter) forget(resource schema.GroupResource, made storage.Interface) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(c.storages[resource]), func(s storage.Interface) bool { return s == made })
	if c.storages[resource] = left; len(left) == 0 {
		delete(c.storages, resource)
		etcd3metrics.DeleteStoreStats(resource)
	}
}

// report sets the metrics of a resource, unless it was forgotten while its objects were counted.
func (c *objectCounter) report(resource schema.GroupResource, made storage.Interface, stats storage.Stats, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.storages[resource], made) {
		etcd3metrics.UpdateStoreStats(resource, stats, err)
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
		for resource, all := range storages {
			made := all[len(all)-1]
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
			if err == nil {
				c.tracker.Set(resource.String(), stats)
			}
			c.report(resource, made, stats, err)
		}
		due = next
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
