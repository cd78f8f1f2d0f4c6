package bootstrap

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/undo"
)

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

// historyRoles let everyone with the role view, edit or admin read the changes of the objects that they may get, and those with edit or
// admin undo changes. What an undo reads and writes takes the rights for that besides.
func historyRoles() []rbacv1.ClusterRole {
	role := func(name, part, resource string, verbs ...string) rbacv1.ClusterRole {
		return rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: updated(), Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-" + part: "true"},
			},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{changes.GroupVersion.Group}, Resources: []string{resource}, Verbs: verbs}},
		}
	}
	return []rbacv1.ClusterRole{
		role("sqube:aggregate-history-to-view", "view", changes.Resource, "get", "list", "watch"),
		role("sqube:undo", "edit", undo.Resource, "create"),
	}
}

// updated are the annotations of roles and bindings that get back at a start what they lack.
func updated() map[string]string { return map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"} }
