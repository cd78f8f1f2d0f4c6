package changes

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// DeleteCollection implements rest.CollectionDeleter: it purges the versions of one object that are no longer current. A change that says so
// remains in their place. Besides namespace, the field selectors must be resource, in the form resource.group, and name. No role but
// cluster-admin includes the verb.
func (r *REST) DeleteCollection(ctx context.Context, _ rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *internalversion.ListOptions) (runtime.Object, error) {
	s, err := selectionOf(ctx, list, time.Now())
	if err != nil {
		return nil, err
	}
	resource, named := s.required(byResource)
	if _, ok := s.required(byName); !ok || !named || !s.ofOneObject() || list.LabelSelector != nil && !list.LabelSelector.Empty() {
		return nil, apierrors.NewBadRequest("only the changes of one object can be purged: give the field selectors resource, such as secrets or deployments.apps, and name, and no others but namespace")
	}
	key := s.Name
	if s.Namespace != nil && *s.Namespace != "" {
		key = *s.Namespace + "/" + s.Name
	}
	of := schema.ParseGroupResource(resource)
	if options != nil && len(options.DryRun) > 0 {
		return nil, nil
	}
	err = r.log.Store.Purge(ctx, sqlstore.Resource{Group: of.Group, Name: of.Resource}, key, sqlstore.AuthorFrom(ctx))
	if errors.Is(err, sqlstore.ErrNoHistory) {
		return nil, apierrors.NewNotFound(of, key)
	}
	return nil, apistorage.ClientError(err)
}

// ofOneObject reports whether a selection has nothing that selects among the changes of an object.
func (s *Selection) ofOneObject() bool {
	for _, t := range s.terms {
		if t.Operator == selection.NotEquals || !slices.Contains([]string{byResource, byName, byNamespace, byMetadataNamespace}, t.Field) {
			return false
		}
	}
	return len(s.paths) == 0 && s.since.IsZero() && s.until.IsZero() && s.After == 0 && s.Before == 0 && !s.NewestFirst
}
