package bootstrap

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// rbacHook creates the default roles and bindings and the binding of kubeletClient, and adds missing rules and subjects to existing
// ones. It keeps what users added, and objects annotated rbac.authorization.kubernetes.io/autoupdate=false. The reconcilers take no
// context, so their client has one; see within.
func rbacHook(clientWithin func(context.Context) (kubernetes.Interface, error), kubeletClient string) *hook {
	return &hook{
		name: rbacrest.PostStartHookName, // not after the namespaces: the reconciler creates those it needs
		ensure: func(ctx context.Context) error {
			client, err := clientWithin(ctx)
			if err != nil {
				return err
			}
			tasks, err := clusterRoleTasks(ctx, client)
			if notServed(err) {
				return nil
			}
			if err != nil {
				return err
			}
			bindings, err := clusterRoleBindingTasks(ctx, client, kubeletClient)
			if err != nil {
				return err
			}
			tasks = append(tasks, bindings...)
			tasks = append(tasks, namespacedTasks(client)...)
			return each(ctx, tasks, func(_ context.Context, task reconcileTask) error {
				if err := task.run(); err != nil {
					return fmt.Errorf("reconcile %s: %w", task.what, err)
				}
				return nil
			})
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
	what string
	run  func() error
}

func roleTask(what string, role reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) reconcileTask {
	options := reconciliation.ReconcileRoleOptions{Role: role, Client: client, Confirm: true}
	return reconcileTask{what, func() error { _, err := options.Run(); return err }}
}

func bindingTask(what string, binding reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) reconcileTask {
	options := reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: client, Confirm: true}
	return reconcileTask{what, func() error { _, err := options.Run(); return err }}
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

func clusterRoleTasks(ctx context.Context, client kubernetes.Interface) ([]reconcileTask, error) {
	list, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster roles: %w", err)
	}
	present := byName(list.Items)
	live := reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()}
	var tasks []reconcileTask
	for _, role := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		existing, found := present[role.Name]
		tasks = append(tasks, roleTask("cluster role "+role.Name,
			reconciliation.ClusterRoleRuleOwner{ClusterRole: &role},
			listedRole{live, listed[reconciliation.RuleOwner](reconciliation.ClusterRoleRuleOwner{ClusterRole: existing}, found, live.Get)}))
	}
	return tasks, nil
}

// kubeletBinding grants a user all rights on kubelets, which ask this server for authorization, and nothing else. kubeadm calls it
// kubeadm:apiserver-kubelet-client.
func kubeletBinding(user string) rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "sqube:apiserver-kubelet-client",
			Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}

func clusterRoleBindingTasks(ctx context.Context, client kubernetes.Interface, kubeletClient string) ([]reconcileTask, error) {
	list, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster role bindings: %w", err)
	}
	present := byName(list.Items)
	live := reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()}
	var tasks []reconcileTask
	for _, binding := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings(), []rbacv1.ClusterRoleBinding{kubeletBinding(kubeletClient)}) {
		existing, found := present[binding.Name]
		tasks = append(tasks, bindingTask("cluster role binding "+binding.Name,
			reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding},
			listedBinding{live, listed[reconciliation.RoleBinding](reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: existing}, found, live.Get)}))
	}
	return tasks, nil
}

// namespacedTasks reconciles the few roles and bindings in kube-system and kube-public.
func namespacedTasks(client kubernetes.Interface) []reconcileTask {
	var tasks []reconcileTask
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
