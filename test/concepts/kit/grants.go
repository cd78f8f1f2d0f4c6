package kit

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// Rule returns a rule for verbs and a resource such as "get,list", "configmaps", or with a group and subresources: "get",
// "deployments.apps/scale,status". Names restrict it to objects.
func Rule(verbs, resource string, names ...string) rbacv1.PolicyRule {
	resource, subresources, _ := strings.Cut(resource, "/")
	plural, group, _ := strings.Cut(resource, ".")
	r := rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: []string{group}, ResourceNames: names}
	if subresources == "" {
		r.Resources = []string{plural}
		return r
	}
	for _, subresource := range strings.Split(subresources, ",") {
		r.Resources = append(r.Resources, plural+"/"+subresource)
	}
	return r
}

// Grant gives a user permissions in the promise's namespace, and waits until they are in effect. It returns the role, as Bind takes it.
func (c *Cluster) Grant(t testing.TB, user string, rules ...rbacv1.PolicyRule) (role string) {
	t.Helper()
	created := Must(c.Kube.RbacV1().Roles(c.Namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "granted-"}, Rules: rules,
	}, metav1.CreateOptions{}))(t)
	role = "Role/" + created.Name
	c.Bind(t, role, "User/"+user)
	c.WaitForGrant(t, user, c.Namespace, rules[0])
	return role
}

// GrantEverywhere gives a user permissions everywhere, and waits until they are in effect.
func (c *Cluster) GrantEverywhere(t testing.TB, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := Must(c.Kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: c.Namespace + "-"}, Rules: rules,
	}, metav1.CreateOptions{}))(t)
	c.BindEverywhere(t, "ClusterRole/"+role.Name, "User/"+user)
	c.WaitForGrant(t, user, "", rules[0])
}

// Bind binds subjects to a role in the promise's namespace. Role and subjects are written "Kind/name"; a ServiceAccount is
// one of that namespace.
func (c *Cluster) Bind(t testing.TB, role string, subjects ...string) {
	t.Helper()
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "bound-"}, RoleRef: RoleRef(role), Subjects: c.Subjects(subjects)}
	Must(c.Kube.RbacV1().RoleBindings(c.Namespace).Create(t.Context(), binding, metav1.CreateOptions{}))(t)
}

// BindEverywhere binds subjects to a ClusterRole everywhere.
func (c *Cluster) BindEverywhere(t testing.TB, role string, subjects ...string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: c.Namespace + "-"}, RoleRef: RoleRef(role), Subjects: c.Subjects(subjects)}
	Must(c.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}))(t)
}

// RoleRef returns the reference to a role that is written "Kind/name".
func RoleRef(role string) rbacv1.RoleRef {
	kind, name, _ := strings.Cut(role, "/")
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// Subjects returns the subjects written as "Kind/name".
func (c *Cluster) Subjects(written []string) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for _, subject := range written {
		kind, name, _ := strings.Cut(subject, "/")
		s := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
		if kind == rbacv1.ServiceAccountKind {
			s.APIGroup, s.Namespace = "", c.Namespace
		}
		subjects = append(subjects, s)
	}
	return subjects
}

// WaitForGrant waits until the server allows the user what the rule grants.
func (c *Cluster) WaitForGrant(t testing.TB, user, namespace string, r rbacv1.PolicyRule) {
	t.Helper()
	spec := authorizationv1.SubjectAccessReviewSpec{User: user}
	if len(r.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: strings.TrimSuffix(r.NonResourceURLs[0], "*"), Verb: r.Verbs[0]}
	} else {
		resource, subresource, _ := strings.Cut(r.Resources[0], "/")
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: r.Verbs[0], Group: r.APIGroups[0], Resource: resource, Subresource: subresource,
			Name: strings.Join(r.ResourceNames[:min(1, len(r.ResourceNames))], ""),
		}
	}
	harness.Eventually(t, user+" is allowed what was granted", func() bool { return c.ReviewAccess(t, spec).Allowed })
}

// ReviewAccess creates a SubjectAccessReview.
func (c *Cluster) ReviewAccess(t testing.TB, spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	t.Helper()
	review := Must(c.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{}))(t)
	return review.Status
}
