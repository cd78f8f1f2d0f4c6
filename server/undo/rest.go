package undo

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	clientrest "k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/history"
)

// Resource is the name of the resource.
const Resource = "undos"

func init() { changes.Register(&Undo{}) }

// REST serves the resource undos, which can only be created.
type REST struct {
	// Log is what users may know of history.
	Log *changes.Log
	// ConfigAs returns a configuration for requests of a user to this server.
	ConfigAs func(user.Info) *clientrest.Config
}

var (
	_ rest.Creater              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// New implements rest.Storage.
func (*REST) New() runtime.Object { return &Undo{} }

// Destroy implements rest.Storage.
func (*REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*REST) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (*REST) GetSingularName() string { return "undo" }

// Create plans the undo and, if that is asked for, applies it, as the user of the request.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	undo, ok := object.(*Undo)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not an Undo: %T", object))
	}
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("an undo is done as its user")
	}
	cluster, err := NewCluster(r.ConfigAs(caller))
	if err != nil {
		return nil, err
	}
	planner := &Planner{History: known{r.Log, caller}, Cluster: cluster}
	steps, err := planner.Plan(ctx, &undo.Spec)
	if err != nil {
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return nil, err
		}
		return nil, apierrors.NewBadRequest(err.Error())
	}
	undo.Status = Status{Plan: steps}
	if undo.Spec.Apply && len(options.DryRun) == 0 {
		undo.Status.Complete, undo.Status.Applied = planner.Apply(ctx, steps)
	}
	return undo, nil
}

// known is the History of a user.
type known struct {
	log  *changes.Log
	user user.Info
}

// Changes implements History.
func (k known) Changes(ctx context.Context, q Query, yield func(*Change) error) error {
	s := &changes.Selection{Query: history.Query{Namespace: q.Namespace, Name: q.Name, After: q.After, Before: q.Before, NewestFirst: true}}
	if q.Resource != "" {
		s.Resource = &history.Resource{Group: q.Group, Name: q.Resource}
	}
	return k.log.Each(ctx, k.user, s, func(e *changes.Entry) error {
		return yield(&Change{
			Revision: e.ID, Operation: Operation(e.Operation), Group: e.Group, Resource: e.Resource, Namespace: e.Namespace, Name: e.Name,
			UID: e.UID, User: e.User, Manager: e.FieldManager, Written: time.UnixMilli(e.WrittenAt), Before: e.Before, After: e.After,
		})
	})
}
