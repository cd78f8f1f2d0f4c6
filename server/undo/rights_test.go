package undo_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/undo"
)

// TestScript takes back what a script has done to 1,000 objects; one of them has been changed by another since.
func TestScript(t *testing.T) {
	t.Parallel()
	script, config := administrator(t, "script")
	other, _ := administrator(t, "other")
	ns := namespace(t, other)
	const objects = 1000
	each(objects, func(i int) {
		_, err := other.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i), Labels: map[string]string{"team": fmt.Sprint(i), "tier": "web"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	since := metav1.NewTime(time.Now().Truncate(time.Second))
	each(objects, func(i int) {
		if _, err := script.CoreV1().ConfigMaps(ns).Patch(t.Context(), fmt.Sprintf("c%d", i), types.MergePatchType, []byte(`{"metadata":{"labels":{"team":null}}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	_, err := other.CoreV1().ConfigMaps(ns).Patch(t.Context(), "c7", types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"mine"}},"data":{"a":"b"}}`), metav1.PatchOptions{})
	must(t, err)

	status := do(t, config, undo.Spec{Apply: true, Changes: &undo.ChangeSelector{User: "script", Since: &since}})
	if !status.Complete || len(status.Plan) != objects {
		t.Fatalf("%d steps:\n%.2000s", len(status.Plan), told(status))
	}
	if text := told(status); !strings.HasSuffix(text, "leave ConfigMap c7: others have changed the same fields since | conflict .metadata.labels.team by other") {
		t.Errorf("the plan ends with %s", text[len(text)-200:])
	}
	all, err := other.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "tier=web"})
	must(t, err)
	for _, c := range all.Items {
		if want := strings.TrimPrefix(c.Name, "c"); c.Labels["team"] != want && c.Name != "c7" {
			t.Errorf("%s has the labels %v", c.Name, c.Labels)
		}
	}
}

// TestRights undoes as a user who may do less and less.
func TestRights(t *testing.T) {
	t.Parallel()
	root, _ := administrator(t, "root")
	_, config := as(t, "viewer")
	ns := namespace(t, root)
	role, err := root.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "some"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = root.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "some"},
		RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "some"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "viewer"}}}, metav1.CreateOptions{})
	must(t, err)
	for _, verbs := range [][]string{{"create"}} {
		_, err = root.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "may-undo"}, Rules: []rbacv1.PolicyRule{
			{Verbs: verbs, APIGroups: []string{"history.sqube.io"}, Resources: []string{"undos"}},
		}}, metav1.CreateOptions{})
		must(t, err)
	}
	_, err = root.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "may-undo"},
		RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "may-undo"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "viewer"}}}, metav1.CreateOptions{})
	must(t, err)
	first, err := root.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = root.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, root.CoreV1().ConfigMaps(ns).Delete(t.Context(), "seen", metav1.DeleteOptions{}))
	must(t, root.CoreV1().Secrets(ns).Delete(t.Context(), "hidden", metav1.DeleteOptions{}))

	spec := undo.Spec{Apply: true, Changes: &undo.ChangeSelector{User: "root", AfterRevision: revision(t, first), Namespace: ns}}
	eventually(t, "the viewer's rights count", func() bool {
		_, err := try(t, config, undo.Spec{Changes: spec.Changes})
		return err == nil
	})
	status := do(t, config, spec)
	if got := told(status); !strings.HasPrefix(got, "create ConfigMap seen failed: ") || !strings.Contains(got, `User "viewer" cannot create resource "configmaps"`) || strings.Contains(got, "\n") || status.Complete {
		t.Errorf("the viewer's undo is\n%s", got)
	}
	role.Rules[0].Verbs = []string{"get", "create"}
	_, err = root.RbacV1().Roles(ns).Update(t.Context(), role, metav1.UpdateOptions{})
	must(t, err)
	eventually(t, "the viewer may create", func() bool { return do(t, config, spec).Complete })
	if _, err := try(t, config, undo.Spec{Object: &undo.ObjectReference{Kind: "Secret", Namespace: ns, Name: "hidden"}}); err == nil || !strings.Contains(err.Error(), "history has no secrets "+ns+"/hidden") {
		t.Errorf("of an object that the viewer may not get, the answer is %v", err)
	}
}

// TestQuota is refused in the middle, and goes on when there is room.
func TestQuota(t *testing.T) {
	t.Parallel()
	c, config := administrator(t, "quinn")
	ns := namespace(t, c)
	var last int64
	for i := range 6 {
		s, err := c.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}}, metav1.CreateOptions{})
		must(t, err)
		last = revision(t, s)
	}
	for i := range 6 {
		must(t, c.CoreV1().Secrets(ns).Delete(t.Context(), fmt.Sprint("s", i), metav1.DeleteOptions{}))
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("3")}}}
	_, err := c.CoreV1().ResourceQuotas(ns).Create(t.Context(), quota, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the quota is counted", func() bool {
		q, err := c.CoreV1().ResourceQuotas(ns).Get(t.Context(), "few", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
	spec := undo.Spec{Apply: true, Changes: &undo.ChangeSelector{User: "quinn", AfterRevision: last, Resources: []string{"secrets"}}}
	status := do(t, config, spec)
	results := map[undo.Result]int{}
	for _, step := range status.Plan {
		results[step.Result]++
	}
	if status.Complete || results[undo.Done] != 3 || results[undo.Failed] != 3 || !strings.Contains(told(status), "exceeded quota") {
		t.Errorf("with a quota of 3:\n%s", told(status))
	}
	must(t, c.CoreV1().ResourceQuotas(ns).Delete(t.Context(), "few", metav1.DeleteOptions{}))
	eventually(t, "the quota is gone", func() bool { return do(t, config, spec).Complete })
	for _, step := range do(t, config, spec).Plan {
		if step.Action != undo.Leave {
			t.Errorf("again, it would %s %s", step.Action, step.Object.Name)
		}
	}
}
