package crd

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/tools/cache"
)

var (
	verbs            = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = metav1.Verbs{"get", "patch", "update"}
)

// verbsOf returns the supported verbs. While a definition is being deleted, these are fewer.
func verbsOf(d definition) metav1.Verbs {
	if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Terminating) {
		return terminatingVerbs
	}
	return verbs
}

// describe lists the resources and subresources of definitions in one of their versions.
func describe(definitions []definition, gv schema.GroupVersion) []metav1.APIResource {
	list := []metav1.APIResource{}
	for _, d := range definitions {
		names := d.Status.AcceptedNames
		resource := metav1.APIResource{
			Name:               names.Plural,
			SingularName:       names.Singular,
			Namespaced:         d.Spec.Scope == apiextensionsv1.NamespaceScoped,
			Group:              gv.Group,
			Version:            gv.Version,
			Kind:               names.Kind,
			Verbs:              verbsOf(d),
			ShortNames:         names.ShortNames,
			Categories:         names.Categories,
			StorageVersionHash: storageVersionHash(d),
		}
		list = append(list, resource)
		on, err := apihelpers.GetSubresourcesForVersion(d, gv.Version)
		if err != nil || on == nil { // an error means that there is no such version, and so no subresource
			continue
		}
		add := func(subresource string, kind schema.GroupVersionKind) {
			list = append(list, metav1.APIResource{
				Name: names.Plural + "/" + subresource, Namespaced: resource.Namespaced,
				Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Verbs: subresourceVerbs,
			})
		}
		if on.Status != nil {
			add("status", gv.WithKind(names.Kind))
		}
		if on.Scale != nil {
			add("scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
		}
	}
	return list
}

// describeLegacy is describe for discovery v1, where resources name the group and version of their kind only if these differ.
func describeLegacy(definitions []definition, gv schema.GroupVersion) []metav1.APIResource {
	list := describe(definitions, gv)
	for i := range list {
		if list[i].Group == gv.Group {
			list[i].Group, list[i].Version = "", ""
		}
	}
	return list
}

// storageVersionHash returns the hash that lets clients detect a change of the storage version (KEP-2342).
func storageVersionHash(d definition) string {
	storage, err := apihelpers.GetCRDStorageVersion(d)
	if err != nil || !apihelpers.HasServedCRDVersion(d, storage) { // upstream hashes served versions only
		return ""
	}
	return discovery.StorageVersionHash(d.Spec.Group, storage, d.Spec.Names.Kind)
}

// Custom groups come after all built-in ones, by name, and their versions newest first.
const (
	groupPriority   = 1000
	versionPriority = 100
)

// publisher keeps aggregated discovery in step with the definitions. A group version is published as a whole, so changes of several
// of its definitions are published together: at the start, those of all.
type publisher struct {
	catalog      catalog
	manager      aggregated.ResourceManager
	registration cache.ResourceEventHandlerRegistration
	changed      chan struct{} // holds one
	synced       chan struct{} // closed when all definitions that existed at the start are published

	mu      sync.Mutex
	pending map[schema.GroupVersion]bool
}

// newPublisher adds a handler to the informer.
func newPublisher(informer cache.SharedInformer, c catalog, manager aggregated.ResourceManager) (*publisher, error) {
	p := &publisher{
		catalog: c, manager: manager.WithSource(aggregated.CRDSource),
		changed: make(chan struct{}, 1), synced: make(chan struct{}), pending: map[schema.GroupVersion]bool{},
	}
	var err error
	p.registration, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: p.versionsOf,
		UpdateFunc: func(before, after any) {
			if !sameInDiscovery(before.(definition), after.(definition)) {
				p.versionsOf(before) // may have had versions that are gone
				p.versionsOf(after)
			}
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
	return p, nil
}

// sameInDiscovery reports whether two states of a definition look the same in discovery. A new one has several before it is there.
func sameInDiscovery(a, b definition) bool {
	if !apihelpers.IsCRDConditionTrue(a, apiextensionsv1.Established) && !apihelpers.IsCRDConditionTrue(b, apiextensionsv1.Established) {
		return true
	}
	for _, t := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.Established, apiextensionsv1.Terminating} {
		if apihelpers.IsCRDConditionTrue(a, t) != apihelpers.IsCRDConditionTrue(b, t) {
			return false
		}
	}
	return a.UID == b.UID && a.Generation == b.Generation && reflect.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames)
}

// versionsOf marks each group version of a definition to be published.
func (p *publisher) versionsOf(o any) {
	d, ok := o.(definition)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range d.Spec.Versions {
		p.pending[schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}] = true
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// run publishes changes until ctx ends, once it has seen all definitions.
func (p *publisher) run(ctx context.Context) {
	if !cache.WaitFor(ctx, "", p.registration.HasSyncedChecker()) {
		return
	}
	p.publishPending()
	close(p.synced)
	for {
		select {
		case <-p.changed:
			p.publishPending()
		case <-ctx.Done():
			return
		}
	}
}

func (p *publisher) publishPending() {
	p.mu.Lock()
	pending := p.pending
	p.pending = map[schema.GroupVersion]bool{}
	p.mu.Unlock()
	for gv := range pending {
		p.publish(gv)
	}
}

// publish publishes a group version, with all definitions in it.
func (p *publisher) publish(gv schema.GroupVersion) {
	serving := p.catalog.serving(gv)
	if len(serving) == 0 {
		p.manager.RemoveGroupVersion(metav1.GroupVersion(gv))
		return
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
