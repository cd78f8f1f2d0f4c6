package trial

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Grant is what a user may do in a namespace; "" for the whole cluster.
type Grant struct {
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// grant makes the namespaces in Namespaces, and gives the user of the trial the rights in Grants.
func (o *Options) grant(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range o.Namespaces {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make the namespace %s of the copy: %w", name, err)
		}
	}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: o.User}}
	for i, g := range o.Grants {
		named := metav1.ObjectMeta{Name: fmt.Sprintf("trial-of-a-change-%d", i), Namespace: g.Namespace}
		var err error
		if g.Namespace == "" {
			if _, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named, Rules: g.Rules}, metav1.CreateOptions{}); err == nil {
				_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
					ObjectMeta: named, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
				}, metav1.CreateOptions{})
			}
		} else {
			if _, err = client.RbacV1().Roles(g.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: named, Rules: g.Rules}, metav1.CreateOptions{}); err == nil {
				_, err = client.RbacV1().RoleBindings(g.Namespace).Create(ctx, &rbacv1.RoleBinding{
					ObjectMeta: named, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name},
				}, metav1.CreateOptions{})
			}
		}
		if err != nil && !apierrors.IsNotFound(err) { // the namespace is there after the change, if at all
			return fmt.Errorf("give %s the rights that they have: %w", o.User, err)
		}
	}
	return nil
}
