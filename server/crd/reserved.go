package crd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/sqlstore"
)

// reserved reports whether a group is sqube's: that of its rows that are no objects of the API, or one that ends with it, such as its API's.
// Nobody else can define resources there. A definition that is there already is not served, and can only be deleted.
func reserved(group string) bool {
	return group == sqlstore.InternalGroup || strings.HasSuffix(group, "."+sqlstore.InternalGroup) && group != fleetGroup
}

// fleetGroup is that of hosted clusters, whose definitions the server itself installs.
const fleetGroup = "fleet." + sqlstore.InternalGroup

const reservedMessage = "the API groups " + sqlstore.InternalGroup + " and *." + sqlstore.InternalGroup + " are reserved for sqube"

func checkGroup(o runtime.Object) field.ErrorList {
	d, ok := o.(*apiextensions.CustomResourceDefinition)
	if !ok || !reserved(d.Spec.Group) || d.DeletionTimestamp != nil {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "group"), d.Spec.Group, reservedMessage)}
}

// createUnreserved and updateUnreserved refuse definitions in reserved groups.
type createUnreserved struct{ rest.RESTCreateStrategy }

// Validate implements rest.RESTCreateStrategy.
func (s createUnreserved) Validate(ctx context.Context, o runtime.Object) field.ErrorList {
	return append(s.RESTCreateStrategy.Validate(ctx, o), checkGroup(o)...)
}

type updateUnreserved struct{ rest.RESTUpdateStrategy }

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s updateUnreserved) ValidateUpdate(ctx context.Context, o, old runtime.Object) field.ErrorList {
	return append(s.RESTUpdateStrategy.ValidateUpdate(ctx, o, old), checkGroup(o)...)
}

// served is the condition of a definition in a reserved group. Others do not have it.
const served apiextensionsv1.CustomResourceDefinitionConditionType = "Served"

// refusals says of each definition in a reserved group, in the log and in its status, that it is not served.
type refusals struct {
	*Server
	found  chan struct{} // holds one
	logged map[string]bool
}

// newRefusals adds a handler to the informer.
func newRefusals(s *Server) (*refusals, error) {
	r := &refusals{s, make(chan struct{}, 1), map[string]bool{}}
	note := func(o any) {
		if d, ok := o.(definition); ok && reserved(d.Spec.Group) && apihelpers.FindCRDCondition(d, served) == nil {
			select {
			case r.found <- struct{}{}:
			default:
			}
		}
	}
	_, err := s.informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, now any) { note(now) }})
	if err != nil {
		return nil, fmt.Errorf("watch custom resource definitions: %w", err)
	}
	return r, nil
}

// run works until ctx ends.
func (r *refusals) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.found:
		}
		for _, o := range r.catalog.indexer.List() {
			if d := o.(definition); reserved(d.Spec.Group) && apihelpers.FindCRDCondition(d, served) == nil {
				r.say(ctx, d)
			}
		}
	}
}

func (r *refusals) say(ctx context.Context, d definition) {
	if !r.logged[d.Name] {
		r.logged[d.Name] = true
		slog.Warn("a CustomResourceDefinition is not served: "+reservedMessage+"; its objects stay stored until it is deleted", "definition", d.Name)
	}
	said := d.DeepCopy()
	apihelpers.SetCRDCondition(said, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: served, Status: apiextensionsv1.ConditionFalse, Reason: "ReservedGroup", Message: reservedMessage, LastTransitionTime: metav1.NewTime(time.Now()),
	})
	// If it fails, another write will be seen, and this is tried again.
	if _, err := r.client.CustomResourceDefinitions().UpdateStatus(ctx, said, metav1.UpdateOptions{}); err != nil {
		slog.Debug("writing the status of a CustomResourceDefinition failed", "definition", d.Name, "error", err)
	}
}
