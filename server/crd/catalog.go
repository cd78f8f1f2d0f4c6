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
		return []string{o.(definition).Spec.Group}, nil
	}})
	if err != nil {
		return catalog{}, fmt.Errorf("index custom resource definitions by group: %w", err)
	}
	return catalog{informer.GetIndexer()}, nil
}

// serving lists the established definitions that serve a group version, by name.
func (c catalog) serving(gv schema.GroupVersion) []definition {
	inGroup, _ := c.indexer.ByIndex(groupIndex, gv.Group) // the only possible error is a missing index
	return slices.DeleteFunc(established(inGroup), func(d definition) bool { return !apihelpers.HasServedCRDVersion(d, gv.Version) })
}

// established returns those of the definitions that are established, by name.
func established(definitions []any) []definition {
	var found []definition
	for _, o := range definitions {
		if d := o.(definition); apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b definition) int { return strings.Compare(a.Name, b.Name) })
	return found
}
