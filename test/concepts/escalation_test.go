package concepts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const rbacVersion = "rbac.authorization.k8s.io/v1"

// role is one with a generated name.
func role(kind string, rules ...rbacv1.PolicyRule) map[string]any {
	return map[string]any{"apiVersion": rbacVersion, "kind": kind, "metadata": map[string]any{"generateName": "r-"}, "rules": rules}
}

// binding is one with a generated name.
func (c *cluster) binding(kind, role string, subjects ...string) map[string]any {
	return map[string]any{"apiVersion": rbacVersion, "kind": kind, "metadata": map[string]any{"generateName": c.namespace + "-"},
		"roleRef": roleRef(role), "subjects": c.subjects(subjects)}
}

var escalation = []promise{
	{"nobody writes a role with more than they have, unless they may escalate", func(t *testing.T, c *cluster) {
		path := c.path(rbacVersion, "roles")
		c.allow(t, "ann", rule("create,update,get", "roles."+rbacv1.GroupName), rule("get,list", "configmaps"))
		ann := c.as(t, "ann")
		ann.post(t, path, role("Role", rule("get", "configmaps"))).want(t, http.StatusCreated)
		ann.post(t, path, role("Role", rule("get", "configmaps", "a"))).want(t, http.StatusCreated)
		ann.post(t, path, role("Role", rule("get,delete", "configmaps"), rule("get", "secrets"))).forbidden(t,
			`user "ann" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:`,
			`{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}`, `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`)
		ann.post(t, path+"?dryRun=All", role("Role", rule("get", "secrets"))).forbidden(t, "is attempting to grant")

		small := ann.post(t, path, role("Role", rule("get", "configmaps"))).want(t, http.StatusCreated)
		grown := small.object(t)
		grown["rules"] = []rbacv1.PolicyRule{rule("get", "secrets")}
		ann.put(t, path+"/"+small.text(t, "metadata", "name"), grown).forbidden(t, "is attempting to grant")

		c.allow(t, "eve", rule("create,escalate", "roles."+rbacv1.GroupName))
		c.as(t, "eve").post(t, path, role("Role", rule("*", "secrets"))).want(t, http.StatusCreated)
	}},
	{"nobody binds a role that holds more than they have, unless they may bind it", func(t *testing.T, c *cluster) {
		path := c.path(rbacVersion, "rolebindings")
		c.allow(t, "ann", rule("create", "rolebindings."+rbacv1.GroupName))
		ann := c.as(t, "ann")
		ann.post(t, path, c.binding("RoleBinding", "ClusterRole/view", "User/joe")).forbidden(t,
			`user "ann" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:`)
		ann.post(t, path, c.binding("RoleBinding", "ClusterRole/"+c.namespace, "User/joe")).
			refused(t, http.StatusNotFound, "NotFound", `"`+c.namespace+`" not found`) // what it will hold nobody knows
		c.allow(t, "ann", rule("bind", "clusterroles."+rbacv1.GroupName, "view"))
		ann.post(t, path, c.binding("RoleBinding", "ClusterRole/view", "User/joe")).want(t, http.StatusCreated)
		ann.post(t, path, c.binding("RoleBinding", "ClusterRole/edit", "User/joe")).forbidden(t)
	}},
	{"what holds for Roles holds for ClusterRoles, and for paths that are no resources", func(t *testing.T, c *cluster) {
		user := "ann-" + c.namespace
		c.allowCluster(t, user, rule("create", "clusterroles."+rbacv1.GroupName), rule("create", "clusterrolebindings."+rbacv1.GroupName),
			rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}})
		ann := c.as(t, user)
		roles, bindings := c.global(rbacVersion, "clusterroles"), c.global(rbacVersion, "clusterrolebindings")
		ann.post(t, roles, role("ClusterRole", rbacv1.PolicyRule{Verbs: []string{"get"},
			NonResourceURLs: []string{"/metrics"}})).want(t, http.StatusCreated)
		ann.post(t, roles, role("ClusterRole", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics/*"}})).
			forbidden(t, `{NonResourceURLs:["/metrics/*"], Verbs:["get"]}`)
		ann.post(t, bindings, c.binding("ClusterRoleBinding", "ClusterRole/cluster-admin", "User/"+user)).forbidden(t,
			`{APIGroups:["*"], Resources:["*"], Verbs:["*"]}`)
		c.post(t, bindings, c.binding("ClusterRoleBinding", "ClusterRole/view", "User/"+user)).want(t, http.StatusCreated)
	}},
	{"the role that a binding refers to can't be changed", func(t *testing.T, c *cluster) {
		created := c.post(t, c.path(rbacVersion, "rolebindings"), c.binding("RoleBinding", "ClusterRole/view", "User/joe")).want(t, http.StatusCreated)
		c.patch(t, mergePatch, c.path(rbacVersion, "rolebindings", created.text(t, "metadata", "name")), `{"roleRef":{"name":"edit"}}`).
			refused(t, http.StatusUnprocessableEntity, "Invalid", "roleRef", "cannot change roleRef")
	}},
	{"a binding may come before its role", func(t *testing.T, c *cluster) {
		c.bind(t, "Role/later", "User/ann")
		c.awaitGrantAfter(t, func() {
			later := role("Role", rule("list", "configmaps"))
			later["metadata"] = map[string]any{"name": "later"}
			c.post(t, c.path(rbacVersion, "roles"), later).want(t, http.StatusCreated)
		})
	}},
}

// awaitGrantAfter shows that ann may list ConfigMaps only after something was done.
func (c *cluster) awaitGrantAfter(t *testing.T, do func()) {
	t.Helper()
	ask := authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: "list", Resource: "configmaps"}}
	eventually(t, "the server sees that the role is missing", func() bool {
		status := c.review(t, ask)
		if status.Allowed {
			t.Fatal("allowed before there is a role")
		}
		return strings.Contains(status.Reason, `"later" not found`)
	})
	do()
	c.awaitGrant(t, "ann", c.namespace, rule("list", "configmaps"))
}

const authorizationVersion = "authorization.k8s.io/v1"

var accessReviews = []promise{
	{"a SubjectAccessReview tells what somebody may do, and why", func(t *testing.T, c *cluster) {
		c.allow(t, "ann", rule("list", "configmaps"))
		ask := func(user, verb string, groups ...string) authorizationv1.SubjectAccessReviewStatus {
			return c.review(t, authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: verb, Resource: "configmaps"}})
		}
		if got := ask("ann", "list"); !got.Allowed || got.Denied || !strings.HasPrefix(got.Reason,
			"RBAC: allowed by RoleBinding ") || !strings.HasSuffix(got.Reason, ` to User "ann"`) {
			t.Errorf("of what is allowed: %+v", got)
		}
		if got := ask("ann", "delete"); got.Allowed || got.Denied {
			t.Errorf("of what is not: %+v", got)
		}
		if got := ask("root", "delete", "system:masters"); !got.Allowed {
			t.Errorf("of a master: %+v", got)
		}
		if got := c.review(t, authorizationv1.SubjectAccessReviewSpec{User: "ann",
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}); got.Allowed {
			t.Errorf("of a path: %+v", got)
		}
		c.post(t, c.global(authorizationVersion, "subjectaccessreviews"), `{"spec":{"user":"ann"}}`).
			refused(t, http.StatusUnprocessableEntity, "Invalid", "exactly one of nonResourceAttributes or resourceAttributes must be specified")
		c.as(t, "ann").post(t, c.global(authorizationVersion, "subjectaccessreviews"), `{"spec":{"user":"ann"}}`).forbidden(t)
	}},
	{"a LocalSubjectAccessReview may be asked in its own namespace, by its admin", func(t *testing.T, c *cluster) {
		c.bind(t, "ClusterRole/admin", "User/boss")
		c.awaitGrant(t, "boss", c.namespace, rule("create", "localsubjectaccessreviews.authorization.k8s.io"))
		ask := func(namespace string) answer {
			return c.as(t, "boss").post(t, c.path(authorizationVersion, "localsubjectaccessreviews"), authorizationv1.LocalSubjectAccessReview{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "boss",
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"}}})
		}
		if got := ask(c.namespace).want(t, http.StatusCreated); got.value(t, "status", "allowed") != true {
			t.Errorf("the answer is %s", got.Body)
		}
		ask("default").want(t, http.StatusBadRequest, http.StatusUnprocessableEntity)
	}},
	{"everybody may ask about themselves: what they may do, and all of it", func(t *testing.T, c *cluster) {
		c.allow(t, "ann", rule("list", "configmaps"), rule("get", "secrets", "s"))
		ann := c.as(t, "ann")
		ask := func(verb string) any {
			return ann.post(t, c.global(authorizationVersion, "selfsubjectaccessreviews"), authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: verb, Resource: "configmaps"}},
			}).want(t, http.StatusCreated).value(t, "status", "allowed")
		}
		if ask("list") != true || ask("delete") == true {
			t.Error("the answers about herself are wrong")
		}
		rules := ann.post(t, c.global(authorizationVersion, "selfsubjectrulesreviews"), authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: c.namespace}}).want(t, http.StatusCreated)
		for _, part := range []string{`"resources":["configmaps"]`, `"resourceNames":["s"]`, `"nonResourceURLs":["/healthz"`} {
			if !strings.Contains(string(rules.Body), part) {
				t.Errorf("the rules lack %s:\n%s", part, rules.Body)
			}
		}
	}},
	{"kubectl auth can-i, whoami and reconcile work", func(t *testing.T, c *cluster) {
		c.allow(t, "ann", rule("list", "configmaps"))
		for _, check := range []struct {
			want string
			ok   bool
			args []string
		}{
			{"yes", true, []string{"list", "configmaps", "--as=ann"}},
			{"no", false, []string{"delete", "configmaps", "--as=ann"}},
			{"yes", true, []string{"*", "*", "--all-namespaces"}},
			{"no", false, []string{"get", "/metrics", "--as=ann"}},
			{"configmaps", true, []string{"--list", "--as=ann"}},
		} {
			if out, ok := c.kubectl(t, "", append([]string{"auth", "can-i"}, check.args...)...); ok != check.ok || !strings.Contains(out, check.want) {
				t.Errorf("kubectl auth can-i %q: %v\n%s", check.args, ok, out)
			}
		}
		if out, ok := c.kubectl(t, "", "auth", "whoami", "--as=ann", "--as-group=dev"); !ok || !strings.Contains(out,
			"ann") || !strings.Contains(out, "[dev system:authenticated]") {
			t.Errorf("kubectl auth whoami: %v\n%s", ok, out)
		}
		role := "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reconciled, namespace: %s}, rules: [{apiGroups: [''], resources: [pods], verbs: [%s]}]}"
		for _, verb := range []string{"get", "list"} { // the second adds to the first
			if out, ok := c.kubectl(t, fmt.Sprintf(role, c.namespace, verb), "auth", "reconcile", "-f", "-"); !ok || !strings.Contains(out, "reconciled") {
				t.Errorf("kubectl auth reconcile: %v\n%s", ok, out)
			}
		}
		if rules := string(c.get(t, c.path(rbacVersion, "roles", "reconciled")).Body); !strings.Contains(rules, `"get"`) ||
			!strings.Contains(rules, `"list"`) {
			t.Errorf("the reconciled role is %s", rules)
		}
	}},
}
