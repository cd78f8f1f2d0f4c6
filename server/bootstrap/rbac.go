package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
	"k8s.io/utils/clock"

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
		stored: func(ctx context.Context) error {
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

func clusterRoleTasks(ctx context.Context, client kubernetes.Interface) ([]*reconcileTask, error) {
	list, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster roles: %w", err)
	}
	present := byName(list.Items)
	live := reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()}
	var tasks []*reconcileTask
	for _, role := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles(), []rbacv1.ClusterRole{servingApproverClusterRole()}, historyRoles()) {
		existing, found := present[role.Name]
		tasks = append(tasks, roleTask("cluster role "+role.Name,
			reconciliation.ClusterRoleRuleOwner{ClusterRole: &role},
			listedRole{live, listed[reconciliation.RuleOwner](reconciliation.ClusterRoleRuleOwner{ClusterRole: existing}, found, live.Get)}))
	}
	return tasks, nil
}

func clusterRoleBindingTasks(ctx context.Context, client kubernetes.Interface, kubeletClient string) ([]*reconcileTask, error) {
	list, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster role bindings: %w", err)
	}
	present := byName(list.Items)
	live := reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()}
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

const (
	// identityDuration is how long this server counts as alive after its last renewal, like upstream.
	identityDuration = time.Hour
	// identityRenewal is sixty times upstream's interval: a lease of an hour does not need a write every ten seconds.
	identityRenewal = 10 * time.Minute
)

// ServerID returns the name of this server in its cluster: "apiserver-" and a hash of the host's name and of instance, which
// distinguishes servers on one host. It returns an error if the host has no name.
func ServerID(instance string) (string, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this server after its host: %w", err)
	}
	hash := sha256.Sum256([]byte(hostname + "\x00" + instance))
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(hash[:16])), nil
}

// identityHook maintains the Lease that shows that this server exists (KEP-1965), and deletes it when the server stops.
func identityHook(client kubernetes.Interface, serverID string, renewal time.Duration, after ...*hook) *hook {
	controller := lease.NewController(clock.RealClock{}, client, serverID+"_"+string(uuid.NewUUID()),
		int32(identityDuration/identityRenewal*renewal/time.Second), nil, renewal, serverID, metav1.NamespaceSystem, labelIdentity)
	return &hook{
		name:      "start-kube-apiserver-identity-lease-controller",
		after:     after,
		announces: true,
		serve: readyAtOnce(func(ctx context.Context) {
			controller.Run(ctx)
			controller.Stop()
		}),
	}
}

// labelIdentity sets the labels of kube-apiserver's identity Leases.
func labelIdentity(l *coordinationv1.Lease) error {
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("label the lease of this server: %w", err)
	}
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[controlplane.IdentityLeaseComponentLabelKey] = controlplane.KubeAPIServer
	l.Labels[corev1.LabelHostname] = hostname
	return nil
}

// identityCollectorHook deletes Leases of servers that ended without deleting them. Upstream's collector watches them all the time, for what
// it does once an hour.
func identityCollectorHook(client kubernetes.Interface, interval time.Duration, after ...*hook) *hook {
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	return &hook{
		name:  "start-kube-apiserver-identity-lease-garbage-collector",
		after: after,
		serve: readyAtOnce(func(ctx context.Context) {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				if err := collectIdentities(ctx, leases); err != nil {
					utilruntime.HandleErrorWithContext(ctx, err, "The Leases of servers that have ended can't be deleted")
				}
			}, interval)
		}),
	}
}

// collectIdentities deletes the identity Leases that have expired or are invalid.
func collectIdentities(ctx context.Context, leases coordinationclient.LeaseInterface) error {
	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: controlplane.IdentityLeaseComponentLabelKey + "=" + controlplane.KubeAPIServer})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		lease := &list.Items[i]
		renewed, seconds := lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds
		if renewed == nil || seconds == nil || time.Since(renewed.Time) > time.Duration(*seconds)*time.Second {
			errs = append(errs, deleteUnchanged(ctx, leases, lease))
		}
	}
	return errors.Join(errs...)
}
