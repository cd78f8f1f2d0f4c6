package crd

import (
	"fmt"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/tools/cache"
)

// Custom groups come after all built-in ones, by name, and their versions newest first.
const (
	groupPriority   = 1000
	versionPriority = 100
)

// publish keeps aggregated discovery in step with the definitions. It does so in the informer's event handlers: the catalog has
// the change by then, and no step can fail and need a retry. The registration has synced when all definitions that existed at
// the start are published.
func publish(informer cache.SharedInformer, c catalog, manager aggregated.ResourceManager) (cache.ResourceEventHandlerRegistration, error) {
	p := publisher{catalog: c, manager: manager.WithSource(aggregated.CRDSource)}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: p.versionsOf,
		UpdateFunc: func(before, after any) {
			p.versionsOf(before) // may have had versions that are gone
			p.versionsOf(after)
		},
		DeleteFunc: func(o any) {
			if unseen, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unseen.Obj
			}
			p.versionsOf(o)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch custom resource definitions: %w", err)
	}
	return registration, nil
}

type publisher struct {
	catalog catalog
	manager aggregated.ResourceManager
}

// versionsOf publishes each group version of a definition again, with all definitions in it.
func (p publisher) versionsOf(o any) {
	d, ok := o.(definition)
	if !ok {
		return
	}
	for _, v := range d.Spec.Versions {
		gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
		serving := p.catalog.serving(gv)
		if len(serving) == 0 {
			p.manager.RemoveGroupVersion(metav1.GroupVersion(gv))
			continue
		}
		// Fails only if a subresource has another scope than its resource.
		resources, _ := genericapi.ConvertGroupVersionIntoToDiscovery(describe(serving, gv))
		p.manager.AddGroupVersion(gv.Group, apidiscoveryv2.APIVersionDiscovery{
			Version:   gv.Version,
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
			Resources: resources,
		})
		p.manager.SetGroupVersionPriority(metav1.GroupVersion(gv), groupPriority, versionPriority)
	}
}
