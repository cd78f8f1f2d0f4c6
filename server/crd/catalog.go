package crd

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
