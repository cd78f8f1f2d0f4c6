package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// rbacHook creates the default roles and bindings and the binding of kubeletClient, and adds missing rules and subjects to existing
// ones. It keeps what users added, and objects annotated rbac.authorization.kubernetes.io/autoupdate=false. The reconcilers take no
// context, so their client has one; see within.
//
// It is done when the authorizer RBAC, if it is in use, has all of them from its informers: controllers that start then are not refused.
func rbacHook(clientWithin func(context.Context) (kubernetes.Interface, error), store StoreFunc, kubeletClient string, authorizer rbacinformers.Interface) *hook {
	return &hook{
		name: rbacrest.PostStartHookName, // not after the namespaces: the reconciler creates those it needs
		ensure: func(ctx context.Context) error {
			client, err := clientWithin(ctx)
			if err != nil {
				return err
			}
			tasks, err := clusterRoleTasks(ctx, client, store)
			if notServed(err) {
				return nil
			}
			if err != nil {
				return err
			}
			bindings, err := clusterRoleBindingTasks(ctx, client, store, kubeletClient)
			if err != nil {
				return err
			}
			tasks = append(tasks, bindings...)
			tasks = append(tasks, namespacedTasks(client)...)
			err = each(ctx, tasks, func(_ context.Context, task *reconcileTask) (err error) {
				if task.result, err = task.run(); err != nil {
					return fmt.Errorf("reconcile %s: %w", task.what, err)
				}
				return nil
			})
			if err != nil || authorizer == nil {
				return err
			}
			for _, task := range tasks {
				if err := task.arrives(ctx, authorizer); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// within returns a configuration whose requests fail once ctx has ended. While the database accepts no writes, clients retry for
// a long time.
func within(ctx context.Context, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(transport.ContextCanceller(ctx, context.Canceled))
	return config
}

// reconcileTask brings one role or binding up to date.
type reconcileTask struct {
	what   string
	run    func() (runtime.Object, error)
	result runtime.Object
}

// How often and how long the hook looks whether the result of a task is in an informer, before it checks that it still exists.
const (
	arrivalInterval = 2 * time.Millisecond
	arrivalTimeout  = 5 * time.Second
)

// arrives waits until the informer of the result's kind has it.
func (t *reconcileTask) arrives(ctx context.Context, informers rbacinformers.Interface) error {
	var informer cache.SharedIndexInformer
	switch t.result.(type) {
	case *rbacv1.ClusterRole:
		informer = informers.ClusterRoles().Informer()
	case *rbacv1.ClusterRoleBinding:
		informer = informers.ClusterRoleBindings().Informer()
	case *rbacv1.Role:
		informer = informers.Roles().Informer()
	case *rbacv1.RoleBinding:
		informer = informers.RoleBindings().Informer()
	}
	wanted := t.result.(metav1.Object).GetResourceVersion()
	err := wait.PollUntilContextTimeout(ctx, arrivalInterval, arrivalTimeout, true, func(context.Context) (bool, error) {
		present, ok, err := informer.GetStore().Get(t.result)
		if err != nil || !ok {
			return false, err
		}
		order, err := resourceversion.CompareResourceVersion(present.(metav1.Object).GetResourceVersion(), wanted)
		return order >= 0, err
	})
	if err != nil {
		return fmt.Errorf("wait until the authorizer has %s: %w", t.what, err)
	}
	return nil
}

func roleTask(what string, role reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) *reconcileTask {
	options := reconciliation.ReconcileRoleOptions{Role: role, Client: client, Confirm: true}
	return &reconcileTask{what: what, run: func() (runtime.Object, error) {
		result, err := options.Run()
		if err != nil {
			return nil, err
		}
		return result.Role.GetObject(), nil
	}}
}

func bindingTask(what string, binding reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) *reconcileTask {
	options := reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: client, Confirm: true}
	return &reconcileTask{what: what, run: func() (runtime.Object, error) {
		result, err := options.Run()
		if err != nil {
			return nil, err
		}
		return result.RoleBinding.GetObject(), nil
	}}
}

// listed returns a function that serves a reconciler's first get from a list, so that two lists replace some 160 gets. Later gets
// follow a write conflict and must see the current object.
func listed[T any](value T, found bool, live func(namespace, name string) (T, error)) func(namespace, name string) (T, error) {
	asked := false
	return func(namespace, name string) (T, error) {
		if asked {
			return live(namespace, name)
		}
		asked = true
		if !found {
			return value, apierrors.NewNotFound(rbacv1.Resource("bootstrap"), name)
		}
		return value, nil
	}
}

type listedRole struct {
	reconciliation.RuleOwnerModifier
	get func(namespace, name string) (reconciliation.RuleOwner, error)
}

func (l listedRole) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	return l.get(namespace, name)
}

type listedBinding struct {
	reconciliation.RoleBindingModifier
	get func(namespace, name string) (reconciliation.RoleBinding, error)
}

func (l listedBinding) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	return l.get(namespace, name)
}

func clusterRoleTasks(ctx context.Context, client kubernetes.Interface, store StoreFunc) ([]*reconcileTask, error) {
	list, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster roles: %w", err)
	}
	present := byName(list.Items)
	live := reconciliation.ClusterRoleModifier{Client: clusterRoles{client.RbacV1().ClusterRoles(), store}}
	var tasks []*reconcileTask
	for _, role := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles(), []rbacv1.ClusterRole{servingApproverClusterRole()}, historyRoles()) {
		existing, found := present[role.Name]
		tasks = append(tasks, roleTask("cluster role "+role.Name,
			reconciliation.ClusterRoleRuleOwner{ClusterRole: &role},
			listedRole{live, listed[reconciliation.RuleOwner](reconciliation.ClusterRoleRuleOwner{ClusterRole: existing}, found, live.Get)}))
	}
	return tasks, nil
}

func clusterRoleBindingTasks(ctx context.Context, client kubernetes.Interface, store StoreFunc, kubeletClient string) ([]*reconcileTask, error) {
	list, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster role bindings: %w", err)
	}
	present := byName(list.Items)
	live := reconciliation.ClusterRoleBindingClientAdapter{Client: clusterRoleBindings{client.RbacV1().ClusterRoleBindings(), store}}
	var tasks []*reconcileTask
	for _, binding := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings(), []rbacv1.ClusterRoleBinding{kubeletBinding(kubeletClient), servingApproverBinding()}) {
		existing, found := present[binding.Name]
		tasks = append(tasks, bindingTask("cluster role binding "+binding.Name,
			reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding},
			listedBinding{live, listed[reconciliation.RoleBinding](reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: existing}, found, live.Get)}))
	}
	return tasks, nil
}

// namespacedTasks reconciles the few roles and bindings in kube-system and kube-public.
func namespacedTasks(client kubernetes.Interface) []*reconcileTask {
	var tasks []*reconcileTask
	for namespace, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			tasks = append(tasks, roleTask("role "+namespace+"/"+role.Name,
				reconciliation.RoleRuleOwner{Role: &role},
				reconciliation.RoleModifier{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}))
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			tasks = append(tasks, bindingTask("role binding "+namespace+"/"+binding.Name,
				reconciliation.RoleBindingAdapter{RoleBinding: &binding},
				reconciliation.RoleBindingClientAdapter{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}))
		}
	}
	return tasks
}
