package undo

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	clientrest "k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/changes"
)

// Resource is the name of the resource.
const Resource = "undos"

func init() { changes.Register(&Undo{}) }

// running are the undos that are planned or applied now. Their number is limited, since each can take much memory and many requests.
var running = make(chan struct{}, 4)

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

// CreatesInNamespaces implements handlers.CreaterInNamespaces, for those who may undo in one namespace only.
func (*REST) CreatesInNamespaces() {}

// GetSingularName implements rest.SingularNameProvider.
func (*REST) GetSingularName() string { return "undo" }

// Create plans the undo and, if that is asked for, applies it, as the user of the request.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	undo, ok := object.(*Undo)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not an Undo: %T", object))
	}
	undo.ManagedFields = nil // it is not stored, so its fields have no owners
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("an undo is done as its user")
	}
	select {
	case running <- struct{}{}:
		defer func() { <-running }()
	default:
		return nil, apierrors.NewTooManyRequests("other undos are going on", 1)
	}
	cluster, err := newCluster(r.ConfigAs(caller), string(audit.GetAuditIDTruncated(ctx)))
	if err != nil {
		return nil, err
	}
	p := &planner{past: &past{r.Log, caller}, cluster: cluster}
	if err := undo.Spec.limit(request.NamespaceValue(ctx)); err != nil {
		return nil, err
	}
	planning, cancel := inTime(ctx)
	defer cancel()
	steps, err := p.plan(planning, &undo.Spec)
	if err != nil && planning.Err() != nil && ctx.Err() == nil {
		return nil, apierrors.NewTimeoutError("planning this takes longer than a request may: nothing has been changed; undo less at once", 0)
	}
	if err != nil {
		return nil, err
	}
	undo.Status = Status{Plan: steps, Notes: p.selection.notes}
	if undo.Spec.Apply && len(options.DryRun) == 0 {
		undo.Status.Complete, undo.Status.Applied, err = p.run(ctx, steps)
	}
	return undo, err
}
