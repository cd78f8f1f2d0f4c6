package handlers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/server/stack"
)

// Upstream's handlers start a goroutine for each write. These types are the first code of sqube that runs in it.

// stackCreater makes an empty object at the beginning of each creation.
type stackCreater struct{ runtime.ObjectCreater }

// New implements runtime.ObjectCreater.
func (c stackCreater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	stack.Write()
	return c.ObjectCreater.New(kind)
}

type stackUpdater struct{ rest.Updater }

// Update implements rest.Updater.
func (u stackUpdater) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	stack.Write()
	return u.Updater.Update(ctx, name, info, create, update, forceAllowCreate, options)
}

type stackPatcher struct {
	rest.Getter
	stackUpdater
}
