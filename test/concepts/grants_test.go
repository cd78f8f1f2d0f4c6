package concepts

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rule is written "get,list", "configmaps", or with a group and subresources: "get", "deployments.apps/scale,status".
// Names restrict it to objects.
func rule(verbs, resource string, names ...string) rbacv1.PolicyRule {
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

// allow gives a user permissions in the promise's namespace, and waits until they are in force.
func (c *cluster) allow(t testing.TB, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role, err := c.kube.RbacV1().Roles(c.namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "granted-"}, Rules: rules,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.bind(t, "Role/"+role.Name, "User/"+user)
	c.awaitGrant(t, user, c.namespace, rules[0])
}

// allowCluster gives a user permissions everywhere, and waits until they are in force.
func (c *cluster) allowCluster(t testing.TB, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role, err := c.kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: c.namespace + "-"}, Rules: rules,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.bindCluster(t, "ClusterRole/"+role.Name, "User/"+user)
	c.awaitGrant(t, user, "", rules[0])
}

// bind binds subjects to a role in the promise's namespace. Role and subjects are written "Kind/name"; a ServiceAccount is
// one of that namespace.
func (c *cluster) bind(t testing.TB, role string, subjects ...string) {
	t.Helper()
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "bound-"}, RoleRef: roleRef(role), Subjects: c.subjects(subjects)}
	if _, err := c.kube.RbacV1().RoleBindings(c.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bindCluster binds subjects to a ClusterRole everywhere.
func (c *cluster) bindCluster(t testing.TB, role string, subjects ...string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: c.namespace + "-"}, RoleRef: roleRef(role), Subjects: c.subjects(subjects)}
	if _, err := c.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func roleRef(role string) rbacv1.RoleRef {
	kind, name, _ := strings.Cut(role, "/")
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

func (c *cluster) subjects(written []string) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for _, subject := range written {
		kind, name, _ := strings.Cut(subject, "/")
		s := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
		if kind == rbacv1.ServiceAccountKind {
			s.APIGroup, s.Namespace = "", c.namespace
		}
		subjects = append(subjects, s)
	}
	return subjects
}

// awaitGrant waits until the server allows the user what the rule says.
func (c *cluster) awaitGrant(t testing.TB, user, namespace string, r rbacv1.PolicyRule) {
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
	eventually(t, user+" is allowed what was granted", func() bool { return c.review(t, spec).Allowed })
}

// review asks the server what somebody may do.
func (c *cluster) review(t testing.TB, spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	t.Helper()
	review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status
}
