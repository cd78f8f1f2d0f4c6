package join

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
)

func subject(kind, name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// clusterBindings let a node get its first certificate with a token, and renew it.
func clusterBindings() []*rbacv1.ClusterRoleBinding {
	bind := func(name, role, group string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{subject(rbacv1.GroupKind, group)},
		}
	}
	return []*rbacv1.ClusterRoleBinding{
		bind(constants.NodeKubeletBootstrap, constants.NodeBootstrapperClusterRoleName, constants.NodeBootstrapTokenAuthGroup),
		bind(constants.NodeAutoApproveBootstrapClusterRoleBinding, constants.CSRAutoApprovalClusterRoleName, constants.NodeBootstrapTokenAuthGroup),
		bind(constants.NodeAutoApproveCertificateRotationClusterRoleBinding, constants.NodeSelfCSRAutoApprovalClusterRoleName, user.NodesGroup),
		bind(constants.GetNodesClusterRoleName, constants.GetNodesClusterRoleName, constants.NodeBootstrapTokenAuthGroup),
	}
}

// reading is the right to read a ConfigMap.
type reading struct {
	namespace, role, configMap string
	subjects                   []rbacv1.Subject
}

func readings() []reading {
	nodes := []rbacv1.Subject{subject(rbacv1.GroupKind, constants.NodeBootstrapTokenAuthGroup), subject(rbacv1.GroupKind, user.NodesGroup)}
	return []reading{
		{metav1.NamespacePublic, "kubeadm:bootstrap-signer-clusterinfo", api.ConfigMapClusterInfo, []rbacv1.Subject{subject(rbacv1.UserKind, user.Anonymous)}},
		{metav1.NamespaceSystem, "kubeadm:nodes-kubeadm-config", constants.KubeadmConfigConfigMap, nodes},
		{metav1.NamespaceSystem, constants.KubeletBaseConfigMapRole, constants.KubeletBaseConfigurationConfigMap, nodes},
	}
}

// grant creates the missing rights to join.
func grant(ctx context.Context, client kubernetes.Interface) error {
	rbac := client.RbacV1()
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: constants.GetNodesClusterRoleName},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
	}, metav1.CreateOptions{})
	if err := created("cluster role kubeadm:get-nodes", err); err != nil {
		return err
	}
	for _, binding := range clusterBindings() {
		_, err := rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		if err := created("cluster role binding "+binding.Name, err); err != nil {
			return err
		}
	}
	for _, r := range readings() {
		meta := metav1.ObjectMeta{Name: r.role}
		_, err := rbac.Roles(r.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{r.configMap},
		}}}, metav1.CreateOptions{})
		if err := created("role "+r.role, err); err != nil {
			return err
		}
		_, err = rbac.RoleBindings(r.namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.role}, Subjects: r.subjects,
		}, metav1.CreateOptions{})
		if err := created("role binding "+r.role, err); err != nil {
			return err
		}
	}
	return nil
}

// created returns the error of a create, or nil if the object exists.
func created(what string, err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create %s: %w", what, err)
}
