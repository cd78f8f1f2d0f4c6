package bootstrap

import (
	"context"
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
)

// StoreFunc stores an object as a request to create it would, and returns what is stored. The object has the managed fields that such a
// request has led to before.
type StoreFunc func(context.Context, runtime.Object) (runtime.Object, error)

// repeatable are the objects that requests of this process have created, by type and name.
var repeatable sync.Map

// create creates an object by a request. Once another server of the process has created it, it is stored without one: the requests
// for the default roles are most of what the start of a server takes.
func create[P interface {
	metav1.Object
	runtime.Object
}](ctx context.Context, store StoreFunc, wanted P, o metav1.CreateOptions, request func(context.Context, P, metav1.CreateOptions) (P, error)) (P, error) {
	key := fmt.Sprintf("%T %s", wanted, wanted.GetName())
	before, ok := repeatable.Load(key)
	if ok && store != nil && equality.Semantic.DeepEqual(content(before.(P)), content(wanted)) {
		object := content(wanted)
		object.SetManagedFields(before.(P).GetManagedFields())
		if stored, err := store(ctx, object.DeepCopyObject()); err == nil {
			return stored.(P), nil
		} // after an error, the request will show it
	}
	made, err := request(ctx, wanted, o)
	if err == nil && !ok {
		repeatable.Store(key, made.DeepCopyObject())
	}
	return made, err
}

// content returns a copy of an object without what is different on each server.
func content[P metav1.Object](object P) P {
	c := any(object).(runtime.Object).DeepCopyObject().(P)
	c.SetUID("")
	c.SetResourceVersion("")
	c.SetCreationTimestamp(metav1.Time{})
	c.SetManagedFields(nil)
	any(c).(runtime.Object).GetObjectKind().SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(""))
	return c
}

type clusterRoles struct {
	rbacclient.ClusterRoleInterface
	store StoreFunc
}

// Create implements ClusterRoleInterface.
func (c clusterRoles) Create(ctx context.Context, role *rbacv1.ClusterRole, o metav1.CreateOptions) (*rbacv1.ClusterRole, error) {
	return create(ctx, c.store, role, o, c.ClusterRoleInterface.Create)
}

type clusterRoleBindings struct {
	rbacclient.ClusterRoleBindingInterface
	store StoreFunc
}

// Create implements ClusterRoleBindingInterface.
func (c clusterRoleBindings) Create(ctx context.Context, binding *rbacv1.ClusterRoleBinding, o metav1.CreateOptions) (*rbacv1.ClusterRoleBinding, error) {
	return create(ctx, c.store, binding, o, c.ClusterRoleBindingInterface.Create)
}
