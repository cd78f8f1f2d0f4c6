package changes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
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
// remains in their place. Besides namespace, the field selectors must be resource, in the form resource.group, and name. It takes the verb in
// all namespaces; no role but cluster-admin includes it.
func (r *REST) DeleteCollection(ctx context.Context, _ rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *internalversion.ListOptions) (runtime.Object, error) {
	s, err := selectionOf(ctx, list, time.Now())
	if err != nil {
		return nil, err
	}
	resource, named := s.required(byResource)
	if _, ok := s.required(byName); !ok || !named || !s.ofOneObject() || list.LabelSelector != nil && !list.LabelSelector.Empty() {
		return nil, apierrors.NewBadRequest("only the changes of one object can be purged: give the field selectors resource, such as secrets or deployments.apps, and name, and no others but namespace")
	}
	if s.Namespace == nil {
		return nil, apierrors.NewBadRequest("give the field selector namespace, too, which is empty (namespace=) for an object without a namespace")
	}
	of := schema.ParseGroupResource(resource)
	stored, key := object{of, *s.Namespace, s.Name}.stored()
	if options != nil && len(options.DryRun) > 0 {
		return nil, nil
	}
	if err := r.mayPurge(ctx, s.Name); err != nil {
		return nil, apistorage.ClientError(err)
	}
	left, err := r.log.Store.Purge(ctx, stored, key, sqlstore.AuthorFrom(ctx))
	switch {
	case errors.Is(err, sqlstore.ErrNoHistory):
		return nil, apierrors.NewNotFound(of, key)
	case err != nil:
		return nil, apistorage.ClientError(err)
	}
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusOK, Message: purged(of, key, left),
		Details: &metav1.StatusDetails{Name: s.Name, Group: of.Group, Kind: of.Resource},
	}, nil
}

// mayPurge returns an error unless the user may purge in all namespaces: a right in a namespace says nothing of what was in one of the same
// name before.
func (r *REST) mayPurge(ctx context.Context, name string) error {
	reader, err := r.reader(ctx)
	if err != nil {
		return err
	}
	everywhere, err := reader.rights.may(ctx, object{GroupResource: changesResource}, "deletecollection")
	if err == nil && !everywhere {
		err = apierrors.NewForbidden(changesResource, name, errors.New("purging takes the right to deletecollection changes in all namespaces"))
	}
	return err
}

// purged says what a purge has done, and what it has left.
func purged(of schema.GroupResource, key string, left sqlstore.Erased) string {
	text := fmt.Sprintf("the earlier versions of %s %s are purged", of, key)
	if left.Kept > 0 {
		text += fmt.Sprintf(", but %d of them can be read until they are packed (--retention), and are erased then", left.Kept)
	}
	if len(left.Left) > 0 {
		text += ". They may still be in " + strings.Join(left.Left, "; in ")
	}
	return text
}

// DeletesCollectionEverywhere implements handlers.CollectionDeleterEverywhere: objects without a namespace are purged so.
func (*REST) DeletesCollectionEverywhere() {}

// ofOneObject reports whether a selection has nothing that selects among the changes of an object.
func (s *Selection) ofOneObject() bool {
	for _, t := range s.terms {
		if t.Operator == selection.NotEquals || !slices.Contains([]string{byResource, byName, byNamespace, byMetadataNamespace}, t.Field) {
			return false
		}
	}
	return len(s.paths) == 0 && s.since.IsZero() && s.until.IsZero() && s.After == 0 && s.Before == 0 && !s.NewestFirst
}
