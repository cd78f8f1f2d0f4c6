package serve

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// spare takes back that a user has made namespaces and owners, in which others have made objects since, which the user may see or not.
func (f *undone) spare(t *testing.T) {
	ctx := t.Context()
	_, c := f.administrator(t, "joe")
	_, err := c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "landlord"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"namespaces", "configmaps"}},
		{Verbs: []string{"create"}, APIGroups: []string{"history.sqube.io"}, Resources: []string{"undos"}},
	}}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "landlord"},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "landlord"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "carol"}}}, metav1.CreateOptions{})
	harness.Must(t, err)
	carol := f.as(t, "carol")
	carols := client(t, carol)
	harness.Retry(t, "carol may create namespaces", func() error {
		_, err := carols.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hidden"}}, metav1.CreateOptions{})
		return err
	})
	makeNamespace(t, carols, "visible")
	makeNamespace(t, carols, "empty")
	configMap := func(namespace, name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
		t.Helper()
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		by := carols
		for _, o := range owners {
			made.OwnerReferences, by = append(made.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID}), c
		}
		made, err := by.CoreV1().ConfigMaps(namespace).Create(ctx, made, metav1.CreateOptions{})
		harness.Must(t, err)
		return made
	}
	configMap("hidden", "mine")
	owner := configMap("default", "owner")
	for i := range 2 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}}
		_, err := c.CoreV1().Secrets("hidden").Create(ctx, secret, metav1.CreateOptions{})
		harness.Must(t, err)
		if i == 0 {
			secret.Name, secret.OwnerReferences = "owned", []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
			_, err := c.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
			harness.Must(t, err)
		}
	}
	_, err = c.CoreV1().ConfigMaps("visible").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "joes"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	configMap("default", "child", configMap("default", "parent"))

	unseen := func(object string, n int) string {
		return fmt.Sprintf("leave   %s: it has objects that you may not see, and that would be deleted with it: %d", object, n)
	}
	always := []string{unseen("namespaces hidden", 2), unseen("configmaps default/owner", 1)}
	has(t, undo(t, carol, "--user", "carol"), append(always, "delete  configmaps hidden/mine", "delete  namespaces empty",
		"leave   namespaces visible: it has configmaps visible/joes, which would be deleted with it", "    conflict: revision N by joe",
		"leave   configmaps default/parent: it has configmaps default/child, which would be deleted with it", totals(0, 0, 2, 4))...)
	has(t, undo(t, carol, "--user", "carol", "--force", "--apply"), append(always, "delete  configmaps hidden/mine (done)", "delete  namespaces empty (done)",
		"delete  namespaces visible (done)", "    conflict: revision N by joe is overwritten", "delete  configmaps default/parent (done)", totals(0, 0, 4, 2))...)
	for name, namespace := range map[string]string{"s0": "hidden", "s1": "hidden", "owned": "default"} {
		if s, err := c.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil || s.DeletionTimestamp != nil {
			t.Errorf("after the undo, the Secret %s is %v, %v", name, s.DeletionTimestamp, err)
		}
	}
}
