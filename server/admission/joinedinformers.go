package admission

import (
	"context"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/sqlstore"
)

// joinedInformers are shared informers, whose stores have what a transaction has written in place of what was there before.
type joinedInformers struct {
	informer.Groups
	shared      informers.SharedInformerFactory
	client      kubernetes.Interface // whose requests are in the transaction
	transaction *sqlstore.Transaction
}

func newJoinedInformers(shared informers.SharedInformerFactory, client kubernetes.Interface, t *sqlstore.Transaction) *joinedInformers {
	f := &joinedInformers{shared: shared, client: client, transaction: t}
	f.Groups = informer.GroupsOf(f)
	return f
}

// InformerFor implements informers.SharedInformerFactory.
func (f *joinedInformers) InformerFor(object runtime.Object, create internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	shared := f.shared.InformerFor(object, create)
	resource, ok := informer.ResourceOf(reflect.TypeOf(object))
	if !ok {
		return shared
	}
	return joinedInformer{shared, joinedStore{shared.GetIndexer(), f, resource}}
}

// InformerName implements informers.SharedInformerFactory.
func (f *joinedInformers) InformerName() *cache.InformerName { return f.shared.InformerName() }

// ForResource implements informers.SharedInformerFactory.
func (f *joinedInformers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	return f.shared.ForResource(resource)
}

// Start implements informers.SharedInformerFactory. The shared informers run already.
func (f *joinedInformers) Start(<-chan struct{}) {}

// StartWithContext implements informers.SharedInformerFactory.
func (f *joinedInformers) StartWithContext(context.Context) {}

// Shutdown implements informers.SharedInformerFactory.
func (f *joinedInformers) Shutdown() {}

// WaitForCacheSync implements informers.SharedInformerFactory.
func (f *joinedInformers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.shared.WaitForCacheSync(stop)
}

// WaitForCacheSyncWithContext implements informers.SharedInformerFactory.
func (f *joinedInformers) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	return f.shared.WaitForCacheSyncWithContext(ctx)
}

// joinedInformer is a shared informer with another store.
type joinedInformer struct {
	cache.SharedIndexInformer
	store joinedStore
}

// GetStore implements cache.SharedInformer.
func (i joinedInformer) GetStore() cache.Store { return i.store }

// GetIndexer implements cache.SharedIndexInformer.
func (i joinedInformer) GetIndexer() cache.Indexer { return i.store }

// joinedStore is the store of an informer, with the objects that a transaction has changed as they are in it.
type joinedStore struct {
	cache.Indexer
	of       *joinedInformers
	resource schema.GroupVersionResource
}

// changed returns the keys of what the transaction has changed.
func (s joinedStore) changed() []string {
	objects := s.of.transaction.Changed(sqlstore.Resource{Group: s.resource.Group, Name: s.resource.Resource})
	keys := make([]string, len(objects))
	for i, o := range objects {
		keys[i] = cache.NewObjectName(o.Namespace, o.Name).String()
	}
	return keys
}

// read returns an object as it is in the transaction, nil if there is none.
func (s joinedStore) read(key string) (any, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), parameterTimeout)
	defer cancel()
	path := []string{"/apis", s.resource.Group, s.resource.Version}
	if s.resource.Group == "" {
		path = []string{"/api", s.resource.Version}
	}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	object, err := s.of.client.CoreV1().RESTClient().Get().AbsPath(append(path, s.resource.Resource, name)...).Do(ctx).Get()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// joined returns objects of the informer as they are in the transaction, with those that it has written and that match.
func (s joinedStore) joined(objects []any, matches func(any) bool) ([]any, error) {
	changed := s.changed()
	if s.resource.Resource == "resourcequotas" {
		// Their usage is counted in them. An informer that is behind would have each write of it conflict.
		for _, o := range objects {
			if key, err := cache.MetaNamespaceKeyFunc(o); err == nil && !slices.Contains(changed, key) {
				changed = append(changed, key)
			}
		}
	}
	if len(changed) == 0 {
		return objects, nil
	}
	objects = slices.DeleteFunc(slices.Clone(objects), func(o any) bool {
		key, err := cache.MetaNamespaceKeyFunc(o)
		return err == nil && slices.Contains(changed, key)
	})
	for _, key := range changed {
		object, err := s.read(key)
		if err != nil {
			return nil, err
		}
		if object != nil && matches(object) {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// GetByKey implements cache.Store.
func (s joinedStore) GetByKey(key string) (any, bool, error) {
	if !slices.Contains(s.changed(), key) {
		return s.Indexer.GetByKey(key)
	}
	object, err := s.read(key)
	return object, object != nil, err
}

// Get implements cache.Store.
func (s joinedStore) Get(object any) (any, bool, error) {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return nil, false, err
	}
	return s.GetByKey(key)
}

// List implements cache.Store. It can't fail: what can't be read is as the informer has it.
func (s joinedStore) List() []any {
	all, err := s.joined(s.Indexer.List(), func(any) bool { return true })
	if err != nil {
		return s.Indexer.List()
	}
	return all
}

// Index implements cache.Indexer.
func (s joinedStore) Index(name string, object any) ([]any, error) {
	found, err := s.Indexer.Index(name, object)
	if err != nil {
		return nil, err
	}
	wanted, err := s.GetIndexers()[name](object)
	if err != nil {
		return nil, err
	}
	return s.joined(found, s.indexed(name, wanted))
}

// ByIndex implements cache.Indexer.
func (s joinedStore) ByIndex(name, value string) ([]any, error) {
	found, err := s.Indexer.ByIndex(name, value)
	if err != nil {
		return nil, err
	}
	return s.joined(found, s.indexed(name, []string{value}))
}

// indexed returns a function that reports whether an object has one of the values in an index.
func (s joinedStore) indexed(name string, wanted []string) func(any) bool {
	return func(object any) bool {
		values, err := s.GetIndexers()[name](object)
		return err == nil && slices.ContainsFunc(values, func(v string) bool { return slices.Contains(wanted, v) })
	}
}
