package crd

import (
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/tools/cache"
)

// definition is a CustomResourceDefinition. Those from a catalog are shared and must not be changed.
type definition = *apiextensionsv1.CustomResourceDefinition

// catalog finds the established definitions: those that are accepted and served.
type catalog struct {
	indexer cache.Indexer
}

const groupIndex = "group"

// newCatalog adds an index to the informer, which must not have been started.
func newCatalog(informer cache.SharedIndexInformer) (catalog, error) {
	err := informer.AddIndexers(cache.Indexers{groupIndex: func(o any) ([]string, error) {
		d, ok := o.(definition)
		if !ok {
			return nil, fmt.Errorf("index custom resource definitions: got a %T", o)
		}
		return []string{d.Spec.Group}, nil
	}})
	if err != nil {
		return catalog{}, fmt.Errorf("index custom resource definitions by group: %w", err)
	}
	return catalog{informer.GetIndexer()}, nil
}

// in lists the established definitions of a group by name.
func (c catalog) in(group string) []definition {
	// The only possible error is a missing index.
	objects, _ := c.indexer.ByIndex(groupIndex, group)
	var established []definition
	for _, o := range objects {
		if d, ok := o.(definition); ok && apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			established = append(established, d)
		}
	}
	slices.SortFunc(established, func(a, b definition) int { return strings.Compare(a.Name, b.Name) })
	return established
}

// serving lists the established definitions that serve a group version.
func (c catalog) serving(gv schema.GroupVersion) []definition {
	return slices.DeleteFunc(c.in(gv.Group), func(d definition) bool { return !apihelpers.HasServedCRDVersion(d, gv.Version) })
}

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
