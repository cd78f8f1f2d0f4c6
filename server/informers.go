package server

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sqube/sqube/server/lazyinformer"
	"github.com/sqube/sqube/sqlstore"
)

// startInformers starts the shared informers. It returns an error if one reads a kind that is not served: a feature gate can need an
// API that --runtime-config or --emulated-version turns off, and the server would never become ready.
func (s *Server) startInformers() error {
	s.informers.Start(s.phase.drained)
	served := s.servedKinds()
	now := make(chan struct{})
	close(now)
	var missing, flags []string
	for kind := range s.informers.WaitForCacheSync(now) {
		kinds, _, err := scheme.Scheme.ObjectKinds(reflect.New(kind.Elem()).Interface().(runtime.Object))
		if err != nil {
			return err
		}
		if version := kinds[0].GroupVersion().String(); !served[kinds[0]] {
			missing, flags = append(missing, kinds[0].Kind+" of "+version), append(flags, version+"=true")
		}
	}
	if missing == nil {
		return nil
	}
	slices.Sort(missing)
	slices.Sort(flags)
	return fmt.Errorf("the server needs %s, which it does not serve: add --runtime-config=%s, with --emulated-version also --runtime-config-emulation-forward-compatible, or leave the feature gates off that need it",
		strings.Join(missing, ", "), strings.Join(slices.Compact(flags), ","))
}

// whileEmpty returns lazyinformer.Factory.Sleep: an informer sleeps while its resource has no objects.
func whileEmpty(b *base, a *apis) lazyinformer.Sleep {
	return func(ctx context.Context, resource schema.GroupVersionResource, wake func()) (func(), bool) {
		stored, ok := storedHere(b, a, resource)
		if !ok {
			return nil, false
		}
		cancel := b.store.OnNext(stored, wake) // first, so that no change is between the two
		if n, err := b.store.Count(ctx, sqlstore.Query{Resource: stored, Limit: 1}); n > 0 || err != nil {
			cancel()
			return nil, false
		}
		return cancel, true
	}
}

// servedKinds returns the kinds of the built-in resources that are served.
func (a *apis) servedKinds() map[schema.GroupVersionKind]bool {
	served := map[schema.GroupVersionKind]bool{}
	for _, group := range a.groups() {
		name := group.PrioritizedVersions[0].Group // events of both groups have the type of one
		for version, storages := range group.VersionedResourcesStorageMap {
			for _, storage := range storages {
				if kinds, _, err := group.Scheme.ObjectKinds(storage.New()); err == nil { // others have no kind
					served[schema.GroupVersionKind{Group: name, Version: version, Kind: kinds[0].Kind}] = true
				}
			}
		}
	}
	return served
}
