package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/transactions"
	"github.com/sqube/sqube/server/undo"
)

// rbacHook creates the default roles and bindings and the binding of kubeletClient, and adds missing rules and subjects to existing
// ones. It keeps what users added, and objects annotated rbac.authorization.kubernetes.io/autoupdate=false. The reconcilers take no
// context, so their client has one; see within.
//
// It is done when the authorizer RBAC, if it is in use, has all of them from its informers: controllers that start then are not refused.
func rbacHook(clientWithin func(context.Context) (kubernetes.Interface, error), kubeletClient string, authorizer rbacinformers.Interface) *hook {
	return &hook{
		name: rbacrest.PostStartHookName, // not after the namespaces: the reconciler creates those it needs
		ensure: func(ctx context.Context) error {
			client, err := clientWithin(ctx)
			if err != nil {
				return err
			}
			if err := synced(ctx, authorizer); err != nil {
				return err
			}
			found, err := findRoles(ctx, client, authorizer)
			if notServed(err) {
				return nil
			}
			if err != nil {
				return err
			}
			tasks := slices.Concat(clusterRoleTasks(client, found), clusterRoleBindingTasks(client, found, kubeletClient), namespacedTasks(client, found))
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
		stored: func(ctx context.Context) error { return synced(ctx, authorizer) },
	}
}

// synced returns when the informers of the authorizer, if it is in use, have synced.
func synced(ctx context.Context, authorizer rbacinformers.Interface) error {
	if authorizer == nil {
		return nil
	}
	for _, informer := range []cache.SharedIndexInformer{
		authorizer.ClusterRoles().Informer(), authorizer.ClusterRoleBindings().Informer(), authorizer.Roles().Informer(), authorizer.RoleBindings().Informer(),
	} {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return fmt.Errorf("wait for the informers of roles: %w", ctx.Err())
		}
	}
	return nil
}

// roles are the roles and bindings that exist, by NAME or NAMESPACE/NAME.
type roles struct {
	clusterRoles        map[string]*rbacv1.ClusterRole
	clusterRoleBindings map[string]*rbacv1.ClusterRoleBinding
	roles               map[string]*rbacv1.Role
	roleBindings        map[string]*rbacv1.RoleBinding
}

// findRoles takes them from the authorizer's informers, or lists them if it is not in use.
func findRoles(ctx context.Context, client kubernetes.Interface, authorizer rbacinformers.Interface) (found roles, err error) {
	if authorizer != nil {
		return roles{
			clusterRoles: held[*rbacv1.ClusterRole](authorizer.ClusterRoles()), clusterRoleBindings: held[*rbacv1.ClusterRoleBinding](authorizer.ClusterRoleBindings()),
			roles: held[*rbacv1.Role](authorizer.Roles()), roleBindings: held[*rbacv1.RoleBinding](authorizer.RoleBindings()),
		}, nil
	}
	rbac := client.RbacV1()
	clusterRoles, err := rbac.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return found, fmt.Errorf("list cluster roles: %w", err)
	}
	clusterRoleBindings, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return found, fmt.Errorf("list cluster role bindings: %w", err)
	}
	namespaced, err := rbac.Roles("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return found, fmt.Errorf("list roles: %w", err)
	}
	roleBindings, err := rbac.RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return found, fmt.Errorf("list role bindings: %w", err)
	}
	return roles{byKey(clusterRoles.Items), byKey(clusterRoleBindings.Items), byKey(namespaced.Items), byKey(roleBindings.Items)}, nil
}

// held returns the objects of an informer by their keys.
func held[T any](of interface {
	Informer() cache.SharedIndexInformer
}) map[string]T {
	found := map[string]T{}
	store := of.Informer().GetStore()
	for _, key := range store.ListKeys() {
		if object, ok, err := store.GetByKey(key); ok && err == nil {
			found[key] = object.(T)
		}
	}
	return found
}

// byKey returns the items of a list by their keys.
func byKey[T any, P object[T]](items []T) map[string]P {
	found := make(map[string]P, len(items))
	for i := range items {
		item := P(&items[i])
		found[cache.MetaObjectToName(item).String()] = item
	}
	return found
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
	if t.result == nil { // nothing was to be done
		return nil
	}
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

// roleTask reconciles a role, of which existing is nil if it is missing.
func roleTask(what string, role, existing reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) *reconcileTask {
	options := reconciliation.ReconcileRoleOptions{Role: role, Client: foundRole{client, found(existing, client.Get)}, Confirm: true}
	return &reconcileTask{what: what, run: func() (runtime.Object, error) {
		if existing != nil && isRole(existing, role) {
			return nil, nil
		}
		result, err := options.Run()
		if err != nil {
			return nil, err
		}
		return result.Role.GetObject(), nil
	}}
}

// isRole reports whether a role is as the expected one, so that nothing is to be done: upstream's comparison takes far longer.
func isRole(existing, expected reconciliation.RuleOwner) bool {
	aggregated := expected.GetAggregationRule()
	return has(existing.GetLabels(), expected.GetLabels()) && has(existing.GetAnnotations(), expected.GetAnnotations()) &&
		equality.Semantic.DeepEqual(existing.GetAggregationRule(), aggregated) &&
		(aggregated != nil && len(expected.GetRules()) == 0 || equality.Semantic.DeepEqual(existing.GetRules(), expected.GetRules()))
}

// has reports whether a map has all entries of another.
func has(existing, expected map[string]string) bool {
	for key, value := range expected {
		if got, ok := existing[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// bindingTask reconciles a binding, of which existing is nil if it is missing.
func bindingTask(what string, binding, existing reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) *reconcileTask {
	options := reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: foundBinding{client, found(existing, client.Get)}, Confirm: true}
	return &reconcileTask{what: what, run: func() (runtime.Object, error) {
		if existing != nil && isBinding(existing, binding) {
			return nil, nil
		}
		result, err := options.Run()
		if err != nil {
			return nil, err
		}
		return result.RoleBinding.GetObject(), nil
	}}
}

// isBinding is isRole for bindings.
func isBinding(existing, expected reconciliation.RoleBinding) bool {
	return has(existing.GetLabels(), expected.GetLabels()) && has(existing.GetAnnotations(), expected.GetAnnotations()) &&
		existing.GetRoleRef() == expected.GetRoleRef() && equality.Semantic.DeepEqual(existing.GetSubjects(), expected.GetSubjects())
}

// found returns a function that serves a reconciler's first get, which takes no request. Later gets follow a write conflict and must see the
// current object.
func found[T comparable](existing T, live func(namespace, name string) (T, error)) func(namespace, name string) (T, error) {
	var none T
	asked := false
	return func(namespace, name string) (T, error) {
		if asked {
			return live(namespace, name)
		}
		asked = true
		if existing == none {
			return none, apierrors.NewNotFound(rbacv1.Resource("bootstrap"), name)
		}
		return existing, nil
	}
}

type foundRole struct {
	reconciliation.RuleOwnerModifier
	get func(namespace, name string) (reconciliation.RuleOwner, error)
}

func (l foundRole) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	return l.get(namespace, name)
}

type foundBinding struct {
	reconciliation.RoleBindingModifier
	get func(namespace, name string) (reconciliation.RoleBinding, error)
}

func (l foundBinding) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	return l.get(namespace, name)
}

func clusterRoleTasks(client kubernetes.Interface, found roles) []*reconcileTask {
	live := reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()}
	var tasks []*reconcileTask
	for _, role := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles(), []rbacv1.ClusterRole{servingApproverClusterRole()}, historyRoles()) {
		var existing reconciliation.RuleOwner
		if present := found.clusterRoles[role.Name]; present != nil {
			existing = reconciliation.ClusterRoleRuleOwner{ClusterRole: present}
		}
		tasks = append(tasks, roleTask("cluster role "+role.Name, reconciliation.ClusterRoleRuleOwner{ClusterRole: &role}, existing, live))
	}
	return tasks
}

func clusterRoleBindingTasks(client kubernetes.Interface, found roles, kubeletClient string) []*reconcileTask {
	live := reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()}
	var tasks []*reconcileTask
	for _, binding := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings(), []rbacv1.ClusterRoleBinding{kubeletBinding(kubeletClient), servingApproverBinding()}) {
		var existing reconciliation.RoleBinding
		if present := found.clusterRoleBindings[binding.Name]; present != nil {
			existing = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: present}
		}
		tasks = append(tasks, bindingTask("cluster role binding "+binding.Name, reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding}, existing, live))
	}
	return tasks
}

// namespacedTasks reconciles the few roles and bindings in kube-system and kube-public.
func namespacedTasks(client kubernetes.Interface, found roles) []*reconcileTask {
	liveRoles := reconciliation.RoleModifier{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}
	liveBindings := reconciliation.RoleBindingClientAdapter{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}
	var tasks []*reconcileTask
	for namespace, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			var existing reconciliation.RuleOwner
			if present := found.roles[namespace+"/"+role.Name]; present != nil {
				existing = reconciliation.RoleRuleOwner{Role: present}
			}
			tasks = append(tasks, roleTask("role "+namespace+"/"+role.Name, reconciliation.RoleRuleOwner{Role: &role}, existing, liveRoles))
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			var existing reconciliation.RoleBinding
			if present := found.roleBindings[namespace+"/"+binding.Name]; present != nil {
				existing = reconciliation.RoleBindingAdapter{RoleBinding: present}
			}
			tasks = append(tasks, bindingTask("role binding "+namespace+"/"+binding.Name, reconciliation.RoleBindingAdapter{RoleBinding: &binding}, existing, liveBindings))
		}
	}
	return tasks
}

// kubeletBinding grants a user all rights on kubelets, which ask this server for authorization, and nothing else. kubeadm calls it
// kubeadm:apiserver-kubelet-client.
func kubeletBinding(user string) rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "sqube:apiserver-kubelet-client",
			Annotations: updated(),
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}

// ServingApprover is the controller that approves serving certificates of kubelets: its name for --controllers, and its service
// account's. Upstream has none, hence no role for it.
const ServingApprover = "kubelet-serving-certificate-approver-controller"

const servingApproverRole = "sqube:controller:kubelet-serving-certificate-approver"

func servingApproverClusterRole() rbacv1.ClusterRole {
	rule := func(group, resource, name string, verbs ...string) rbacv1.PolicyRule {
		r := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
		if name != "" {
			r.ResourceNames = []string{name}
		}
		return r
	}
	events := rule(corev1.GroupName, "events", "", "create", "patch", "update")
	events.APIGroups = append(events.APIGroups, eventsv1.GroupName)
	return rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: servingApproverRole, Annotations: updated()},
		Rules: []rbacv1.PolicyRule{
			rule(certificatesv1.GroupName, "certificatesigningrequests", "", "get", "list", "watch"),
			rule(certificatesv1.GroupName, "certificatesigningrequests/approval", "", "update"),
			rule(certificatesv1.GroupName, "signers", certificatesv1.KubeletServingSignerName, "approve"),
			rule(corev1.GroupName, "nodes", "", "get", "list"),
			rule(corev1.GroupName, "services", "kubernetes", "get"),
			rule(discoveryv1.GroupName, "endpointslices", "kubernetes", "get"),
			events,
		},
	}
}

func servingApproverBinding() rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: servingApproverRole, Annotations: updated()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: servingApproverRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: ServingApprover}},
	}
}

// historyRoles let everyone with the role view, edit or admin read the changes of the objects that they may see, and those with edit or
// admin undo changes. What an undo reads and writes takes the rights for that besides.
func historyRoles() []rbacv1.ClusterRole {
	role := func(name, part string, verbs []string, resources ...string) rbacv1.ClusterRole {
		return rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: updated(), Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-" + part: "true"},
			},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{changes.GroupVersion.Group}, Resources: resources, Verbs: verbs}},
		}
	}
	return []rbacv1.ClusterRole{
		role("sqube:aggregate-history-to-view", "view", []string{"get", "list", "watch"}, changes.Resource),
		role("sqube:undo", "edit", []string{"create"}, undo.Resource),
		role("sqube:transaction", "edit", []string{"create", "get", "list"}, transactions.Resource, transactions.ConfirmResource),
	}
}

// updated are the annotations of roles and bindings that get back at a start what they lack.
func updated() map[string]string { return map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"} }
