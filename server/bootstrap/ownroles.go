package bootstrap

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
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
	rule := rbacv1helpers.NewRule
	return rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: servingApproverRole, Annotations: updated()},
		Rules: []rbacv1.PolicyRule{
			rule("get", "list", "watch").Groups(certificatesv1.GroupName).Resources("certificatesigningrequests").RuleOrDie(),
			rule("update").Groups(certificatesv1.GroupName).Resources("certificatesigningrequests/approval").RuleOrDie(),
			rule("approve").Groups(certificatesv1.GroupName).Resources("signers").Names(certificatesv1.KubeletServingSignerName).RuleOrDie(),
			rule("get", "list").Groups(corev1.GroupName).Resources("nodes").RuleOrDie(),
			rule("get").Groups(corev1.GroupName).Resources("services").Names("kubernetes").RuleOrDie(),
			rule("get").Groups(discoveryv1.GroupName).Resources("endpointslices").Names("kubernetes").RuleOrDie(),
			rule("create", "patch", "update").Groups(corev1.GroupName, "events.k8s.io").Resources("events").RuleOrDie(),
		},
	}
}

func servingApproverBinding() rbacv1.ClusterRoleBinding {
	binding := rbacv1helpers.NewClusterBinding(servingApproverRole).SAs(metav1.NamespaceSystem, ServingApprover).BindingOrDie()
	binding.Annotations = updated()
	return binding
}

// updated are the annotations of roles and bindings that get back at a start what they lack.
func updated() map[string]string { return map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"} }
