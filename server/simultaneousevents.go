package server

import (
	"context"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/sqube/sqube/server/decorate"
)

// withSimultaneousEvents lets Events happen at the same moment. client-go names them after their object and the time in nanoseconds. In a
// bubble, time stands still while a controller works, so Events about one object have the same name, and all but the first would be lost.
func withSimultaneousEvents(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Storage(next, func(resource schema.GroupResource, made storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		if resource == (schema.GroupResource{Resource: "events"}) { // of both groups
			made = simultaneousEvents{made}
		}
		return made, destroy, nil
	})
}

type simultaneousEvents struct{ storage.Interface }

// Unwrap returns the storage, which reads Events.
func (s simultaneousEvents) Unwrap() storage.Interface { return s.Interface }

// Create implements storage.Interface. An Event whose name another one has gets the name of the next nanosecond.
func (s simultaneousEvents) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	for {
		err := s.Interface.Create(ctx, key, obj, out, ttl)
		if !storage.IsExist(err) {
			return err
		}
		event, accessed := meta.Accessor(obj)
		if accessed != nil {
			return accessed
		}
		next, ok := nextNanosecond(event.GetName())
		if !ok || s.same(ctx, key, obj) {
			return err
		}
		key = strings.TrimSuffix(key, event.GetName()) + next
		event.SetName(next)
	}
}

// same reports whether an object is stored already: a client repeats a request whose answer it has not got.
func (s simultaneousEvents) same(ctx context.Context, key string, obj runtime.Object) bool {
	stored := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	if err := s.Get(ctx, key, storage.GetOptions{}, stored); err != nil {
		return false
	}
	x, err := meta.Accessor(stored)
	if err != nil {
		return false
	}
	y, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	x.SetUID(y.GetUID())
	x.SetResourceVersion(y.GetResourceVersion())
	x.SetCreationTimestamp(y.GetCreationTimestamp())
	x.SetManagedFields(y.GetManagedFields())
	return equality.Semantic.DeepEqual(stored, obj)
}

// nextNanosecond returns the name of an Event that happens a nanosecond later.
func nextNanosecond(name string) (next string, ok bool) {
	object, hex, ok := cutLast(name, ".")
	nanoseconds, err := strconv.ParseUint(hex, 16, 63)
	if !ok || err != nil {
		return "", false
	}
	return object + "." + strconv.FormatUint(nanoseconds+1, 16), true
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}
