package handlers

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/server/stack"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// answers is how to respond to the writes of a resource: with the stored bytes, if a get of the object would be served
// from bytes.
type answers struct {
	scope *handlers.RequestScope
	plain bool // writes return objects as they stored them
}

func answersOf(storage rest.Storage, scope *handlers.RequestScope) answers {
	store := plainStore(storage, scope)
	return answers{scope, store != nil && store.AfterCreate == nil && store.AfterUpdate == nil}
}

// answered is how to respond to one request.
type answered struct {
	like apistorage.Raw
	ok   bool // respond with bytes
}

// to returns how to respond to a request.
func (a answers) to(r *http.Request) answered {
	if !a.plain || responseAudited(r) {
		return answered{}
	}
	to, format, ok := asked(r, a.scope)
	kind := metav1.TypeMeta{Kind: a.scope.Kind.Kind, APIVersion: a.scope.Kind.GroupVersion().String()}
	return answered{apistorage.Raw{TypeMeta: kind, Format: format}, ok && to == nil}
}

// write calls write and returns what to send in the response.
func (a answered) write(ctx context.Context, write func(context.Context) (runtime.Object, error)) (runtime.Object, error) {
	if !a.ok {
		return write(ctx)
	}
	ctx, answer := apistorage.WithAnswer(ctx, a.like)
	written, err := write(ctx)
	if err != nil {
		return written, err
	}
	return answer.For(written), nil
}

// answeredCreater is a storage that returns stored bytes for creations.
type answeredCreater struct {
	rest.Creater
	answered
	hidden *hiddenFields
}

func (c answeredCreater) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	c.hidden.show()
	return c.write(ctx, func(ctx context.Context) (runtime.Object, error) {
		return c.Creater.Create(ctx, obj, validate, options)
	})
}

// answeredUpdater is a storage that returns stored bytes for updates.
type answeredUpdater struct {
	rest.Updater
	answered
	hidden *hiddenFields
}

func (u answeredUpdater) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (_ runtime.Object, created bool, err error) {
	stack.Write()
	info = rest.WrapUpdatedObjectInfo(info, func(_ context.Context, updated, _ runtime.Object) (runtime.Object, error) {
		u.hidden.show()
		return updated, nil
	})
	written, err := u.write(ctx, func(ctx context.Context) (written runtime.Object, err error) {
		written, created, err = u.Updater.Update(ctx, name, info, create, update, forceAllowCreate, options)
		return written, err
	})
	return written, created, err
}

type answeredPatcher struct {
	rest.Getter
	answeredUpdater
}
