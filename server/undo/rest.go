package undo

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	clientrest "k8s.io/client-go/rest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// REST serves the resource undos, which can only be created.
type REST struct {
	// HistoryOf returns what a user may know of history.
	HistoryOf func(user.Info) History
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
	planner := &Planner{History: r.HistoryOf(caller), Cluster: cluster}
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
