package resources

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/service/allocator"
)

// rangeTimeout limits one change of a range, since the allocator's interface has no context with a deadline.
const rangeTimeout = 30 * time.Second

var rangeAllocations = schema.GroupResource{Resource: "rangeallocations"}

// rangeStore stores the allocated items of a range in one RangeAllocation, so that all servers allocate from the same set. The bitmap
// in memory is only a working copy: each change first restores it from the stored object, and is kept only if the store accepts
// it.
type rangeStore struct {
	storage storage.Interface
	destroy func()
	key     string
	name    string

	mu     sync.Mutex
	bitmap allocator.Snapshottable
}

// newRangeStore returns the store of the range called name under /core/rangeallocations. The bitmap determines its size and the
// order in which free items are chosen.
func newRangeStore(getter generic.RESTOptionsGetter, name string, bitmap allocator.Snapshottable) (*rangeStore, error) {
	options, err := getter.GetRESTOptions(rangeAllocations, &core.RangeAllocation{})
	if err != nil {
		return nil, err
	}
	key := options.ResourcePrefix + "/" + name
	store, destroy, err := options.Decorator(
		options.StorageConfig,
		options.ResourcePrefix,
		func(runtime.Object) (string, error) { return key, nil },
		func() runtime.Object { return &core.RangeAllocation{} },
		func() runtime.Object { return &metav1.List{} }, // the range is never listed
		storage.DefaultClusterScopedAttr,
		nil, nil,
	)
	if err != nil {
		return nil, fmt.Errorf("opening the storage of %s: %w", name, err)
	}
	return &rangeStore{storage: store, destroy: sync.OnceFunc(destroy), key: key, name: name, bitmap: bitmap}, nil
}

// Allocate allocates an item. It returns false if the item is allocated already.
func (s *rangeStore) Allocate(item int) (taken bool, err error) {
	err = s.change(func() (err error) {
		taken, err = s.bitmap.Allocate(item)
		return err
	})
	return taken && err == nil, err
}

// AllocateNext allocates any free item. It returns false if there is none.
func (s *rangeStore) AllocateNext() (item int, taken bool, err error) {
	err = s.change(func() (err error) {
		item, taken, err = s.bitmap.AllocateNext()
		return err
	})
	return item, taken && err == nil, err
}

// Release frees an item. Releasing a free item does nothing.
func (s *rangeStore) Release(item int) error {
	return s.change(func() error { return s.bitmap.Release(item) })
}

// ForEach calls visit for every allocated item, as of the last change made here.
func (s *rangeStore) ForEach(visit func(int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bitmap.ForEach(visit)
}

// Has reports whether an item is allocated, as of the last change made here.
func (s *rangeStore) Has(item int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bitmap.Has(item)
}

// Free returns how many items are free, as of the last change made here.
func (s *rangeStore) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bitmap.Free()
}

// Destroy closes the storage. It may be called more than once.
func (s *rangeStore) Destroy() {
	s.destroy()
}

// change applies a change of the bitmap to the stored object, and reverts it if it can't be stored. Until the repair loop has
// created the object, the set is unknown and items can't be allocated.
func (s *rangeStore) change(apply func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	spec, data := s.bitmap.Snapshot()
	err := s.update(func(stored *core.RangeAllocation) (*core.RangeAllocation, error) {
		if stored.ResourceVersion == "" {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("%s is not initialized yet: try again in a moment", s.name))
		}
		if err := s.bitmap.Restore(stored.Range, stored.Data); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if err := apply(); err != nil {
			return nil, err
		}
		stored.Range, stored.Data = s.bitmap.Snapshot()
		return stored, nil
	})
	if err != nil {
		if undo := s.bitmap.Restore(spec, data); undo != nil {
			return fmt.Errorf("%w (and the change could not be reverted: %w)", err, undo)
		}
	}
	return err
}

// Get returns the stored object, with an empty resourceVersion if there is none yet.
func (s *rangeStore) Get() (*core.RangeAllocation, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rangeTimeout)
	defer cancel()
	stored := &core.RangeAllocation{}
	if err := s.storage.Get(ctx, s.key, storage.GetOptions{IgnoreNotFound: true}, stored); err != nil {
		return nil, storeerr.InterpretGetError(err, rangeAllocations, s.name)
	}
	return stored, nil
}

// CreateOrUpdate replaces the stored object with snapshot, which is based on the version that Get returned. It returns a conflict
// if another server has changed the object since.
func (s *rangeStore) CreateOrUpdate(snapshot *core.RangeAllocation) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	snapshot.Name = s.name
	based := snapshot.ResourceVersion // storing snapshot clears it
	err := s.update(func(stored *core.RangeAllocation) (*core.RangeAllocation, error) {
		if stored.ResourceVersion != based {
			return nil, apierrors.NewConflict(rangeAllocations, s.name, fmt.Errorf("it has changed since it was read"))
		}
		return snapshot, nil
	})
	if err != nil {
		return err
	}
	return s.bitmap.Restore(snapshot.Range, snapshot.Data)
}

// update runs a guaranteed update of the stored object, which calls replace again if another server was faster.
func (s *rangeStore) update(replace func(*core.RangeAllocation) (*core.RangeAllocation, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), rangeTimeout)
	defer cancel()
	err := s.storage.GuaranteedUpdate(ctx, s.key, &core.RangeAllocation{}, true, nil,
		storage.SimpleUpdate(func(input runtime.Object) (runtime.Object, error) {
			return replace(input.(*core.RangeAllocation))
		}), nil)
	return storeerr.InterpretUpdateError(err, rangeAllocations, s.name)
}
