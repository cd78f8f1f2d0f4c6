package access

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

const rbacVersion = "rbac.authorization.k8s.io/v1"

// role returns a role with a generated name.
func role(kind string, rules ...rbacv1.PolicyRule) map[string]any {
	return map[string]any{"apiVersion": rbacVersion, "kind": kind, "metadata": map[string]any{"generateName": "r-"}, "rules": rules}
}

// binding returns a binding with a generated name.
func binding(c *kit.Cluster, kind, role string, subjects ...string) map[string]any {
	return map[string]any{"apiVersion": rbacVersion, "kind": kind, "metadata": map[string]any{"generateName": c.Namespace + "-"},
		"roleRef": kit.RoleRef(role), "subjects": c.Subjects(subjects)}
}

var escalation = []kit.Promise{
	{Statement: "users can't write a role with permissions that they lack, unless they may escalate", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path(rbacVersion, "roles")
		c.Grant(t, "ann", kit.Rule("create,update,get", "roles."+rbacv1.GroupName), kit.Rule("get,list", "configmaps"))
		ann := c.As(t, "ann")
		ann.Post(t, path, role("Role", kit.Rule("get", "configmaps"))).Created(t)
		ann.Post(t, path, role("Role", kit.Rule("get", "configmaps", "a"))).Created(t)
		ann.Post(t, path, role("Role", kit.Rule("get,delete", "configmaps"), kit.Rule("get", "secrets"))).Forbidden(t,
			`user "ann" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:`,
			`{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}`, `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`)
		ann.Post(t, path+"?dryRun=All", role("Role", kit.Rule("get", "secrets"))).Forbidden(t, "is attempting to grant")

		small := ann.Post(t, path, role("Role", kit.Rule("get", "configmaps"))).Created(t)
		grown := small.Object(t)
		grown["rules"] = []rbacv1.PolicyRule{kit.Rule("get", "secrets")}
		ann.Put(t, path+"/"+small.Text(t, "metadata", "name"), grown).Forbidden(t, "is attempting to grant")

		c.Grant(t, "eve", kit.Rule("create,escalate", "roles."+rbacv1.GroupName))
		c.As(t, "eve").Post(t, path, role("Role", kit.Rule("*", "secrets"))).Created(t)
	}},
	{Statement: "users can't bind a role with permissions that they lack, unless they may bind it", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path(rbacVersion, "rolebindings")
		harness.Eventually(t, "the rules of view are aggregated", func() bool {
			return c.Get(t, c.ClusterPath(rbacVersion, "clusterroles", "view")).OK(t).Object(t)["rules"] != nil
		})
		c.Grant(t, "ann", kit.Rule("create", "rolebindings."+rbacv1.GroupName))
		ann := c.As(t, "ann")
		ann.Post(t, path, binding(c, "RoleBinding", "ClusterRole/view", "User/joe")).Forbidden(t,
			`user "ann" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:`)
		ann.Post(t, path, binding(c, "RoleBinding", "ClusterRole/"+c.Namespace, "User/joe")).
			NotFound(t, `"`+c.Namespace+`" not found`) // its rules are not known yet
		c.Grant(t, "ann", kit.Rule("bind", "clusterroles."+rbacv1.GroupName, "view"))
		ann.Post(t, path, binding(c, "RoleBinding", "ClusterRole/view", "User/joe")).Created(t)
		ann.Post(t, path, binding(c, "RoleBinding", "ClusterRole/edit", "User/joe")).Forbidden(t)
	}},
	{Statement: "the same holds for ClusterRoles, and for non-resource paths", Proof: func(t *testing.T, c *kit.Cluster) {
		user := "ann-" + c.Namespace
		c.GrantEverywhere(t, user, kit.Rule("create", "clusterroles."+rbacv1.GroupName), kit.Rule("create", "clusterrolebindings."+rbacv1.GroupName),
			rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}})
		ann := c.As(t, user)
		roles, bindings := c.ClusterPath(rbacVersion, "clusterroles"), c.ClusterPath(rbacVersion, "clusterrolebindings")
		ann.Post(t, roles, role("ClusterRole", rbacv1.PolicyRule{Verbs: []string{"get"},
			NonResourceURLs: []string{"/metrics"}})).Created(t)
		ann.Post(t, roles, role("ClusterRole", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics/*"}})).
			Forbidden(t, `{NonResourceURLs:["/metrics/*"], Verbs:["get"]}`)
		ann.Post(t, bindings, binding(c, "ClusterRoleBinding", "ClusterRole/cluster-admin", "User/"+user)).Forbidden(t,
			`{APIGroups:["*"], Resources:["*"], Verbs:["*"]}`)
		c.Post(t, bindings, binding(c, "ClusterRoleBinding", "ClusterRole/view", "User/"+user)).Created(t)
	}},
	{Statement: "the role that a binding refers to can't be changed", Proof: func(t *testing.T, c *kit.Cluster) {
		created := c.Post(t, c.Path(rbacVersion, "rolebindings"), binding(c, "RoleBinding", "ClusterRole/view", "User/joe")).Created(t)
		c.Patch(t, kit.MergePatch, c.Path(rbacVersion, "rolebindings", created.Text(t, "metadata", "name")), `{"roleRef":{"name":"edit"}}`).
			Invalid(t, "roleRef", "field is immutable")
	}},
	{Statement: "a binding may be created before its role", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Bind(t, "Role/later", "User/ann")
		awaitGrantAfter(t, c, func() {
			later := role("Role", kit.Rule("list", "configmaps"))
			later["metadata"] = map[string]any{"name": "later"}
			c.Post(t, c.Path(rbacVersion, "roles"), later).Created(t)
		})
	}},
}

// awaitGrantAfter checks that ann may list ConfigMaps only after do was called.
func awaitGrantAfter(t *testing.T, c *kit.Cluster, do func()) {
	t.Helper()
	ask := authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: "list", Resource: "configmaps"}}
	harness.Eventually(t, "the server has noticed that the role is missing", func() bool {
		status := c.ReviewAccess(t, ask)
		if status.Allowed {
			t.Fatal("allowed before there is a role")
		}
		return strings.Contains(status.Reason, `"later" not found`)
	})
	do()
	c.WaitForGrant(t, "ann", c.Namespace, kit.Rule("list", "configmaps"))
}

const authorizationVersion = "authorization.k8s.io/v1"

var accessReviews = []kit.Promise{
	{Statement: "a SubjectAccessReview returns whether a user may do something, and why", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Grant(t, "ann", kit.Rule("list", "configmaps"))
		ask := func(user, verb string, groups ...string) authorizationv1.SubjectAccessReviewStatus {
			return c.ReviewAccess(t, authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: verb, Resource: "configmaps"}})
		}
		if got := ask("ann", "list"); !got.Allowed || got.Denied || !strings.HasPrefix(got.Reason,
			"RBAC: allowed by RoleBinding ") || !strings.HasSuffix(got.Reason, ` to User "ann"`) {
			t.Errorf("for an allowed request: %+v", got)
		}
		if got := ask("ann", "delete"); got.Allowed || got.Denied {
			t.Errorf("for a denied request: %+v", got)
		}
		if got := ask("root", "delete", "system:masters"); !got.Allowed {
			t.Errorf("for a member of system:masters: %+v", got)
		}
		if got := c.ReviewAccess(t, authorizationv1.SubjectAccessReviewSpec{User: "ann",
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}); got.Allowed {
			t.Errorf("for a path: %+v", got)
		}
		c.Post(t, c.ClusterPath(authorizationVersion, "subjectaccessreviews"), `{"spec":{"user":"ann"}}`).
			Invalid(t, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
		c.As(t, "ann").Post(t, c.ClusterPath(authorizationVersion, "subjectaccessreviews"), `{"spec":{"user":"ann"}}`).Forbidden(t)
		c.Post(t, c.ClusterPath(authorizationVersion, "subjectaccessreviews"), `{"spec":{"resourceAttributes":{"verb":"get"}}}`).
			Invalid(t, "at least one of user or group must be specified")
	}},
	{Statement: "the admin of a namespace may create LocalSubjectAccessReviews in it", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Bind(t, "ClusterRole/admin", "User/boss")
		// Rules may be aggregated into the role one after the other.
		c.WaitForGrant(t, "boss", c.Namespace, kit.Rule("create", "localsubjectaccessreviews.authorization.k8s.io"))
		c.WaitForGrant(t, "boss", c.Namespace, kit.Rule("list", "pods"))
		ask := func(namespace string) kit.Answer {
			return c.As(t, "boss").Post(t, c.Path(authorizationVersion, "localsubjectaccessreviews"), authorizationv1.LocalSubjectAccessReview{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "boss",
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"}}})
		}
		if got := ask(c.Namespace).Created(t); got.Value(t, "status", "allowed") != true {
			t.Errorf("the response is %s", got.Body)
		}
		ask("default").Want(t, http.StatusBadRequest, http.StatusUnprocessableEntity)
		review := kit.Manifest("{metadata: {namespace: %s}, spec: {user: boss, resourceAttributes: {verb: get, resource: pods, namespace: default}}}", c.Namespace)
		c.Post(t, c.Path(authorizationVersion, "localsubjectaccessreviews"), review).Invalid(t, "must match metadata.namespace")
		c.Post(t, c.ClusterPath(authorizationVersion, "localsubjectaccessreviews"), review).Want(t, http.StatusMethodNotAllowed, http.StatusNotFound)
	}},
	{Statement: "all users may review their own access: a single request, or all rules", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Grant(t, "ann", kit.Rule("list", "configmaps"), kit.Rule("get", "secrets", "s"))
		ann := c.As(t, "ann")
		ask := func(verb string) any {
			return ann.Post(t, c.ClusterPath(authorizationVersion, "selfsubjectaccessreviews"), authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: verb, Resource: "configmaps"}},
			}).Created(t).Value(t, "status", "allowed")
		}
		if ask("list") != true || ask("delete") == true {
			t.Error("the reviews of her own access are wrong")
		}
		rules := ann.Post(t, c.ClusterPath(authorizationVersion, "selfsubjectrulesreviews"), authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: c.Namespace}}).Created(t)
		for _, part := range []string{`"resources":["configmaps"]`, `"resourceNames":["s"]`, `"nonResourceURLs":["/healthz"`} {
			if !strings.Contains(string(rules.Body), part) {
				t.Errorf("the rules lack %s:\n%s", part, rules.Body)
			}
		}
		ann.Post(t, c.ClusterPath(authorizationVersion, "selfsubjectrulesreviews"), `{"spec":{}}`).BadRequest(t, "no namespace on request")
	}},
	{Statement: "kubectl auth reconcile adds what a role lacks", Proof: func(t *testing.T, c *kit.Cluster) {
		role := "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reconciled, namespace: %s}, rules: [{apiGroups: [''], resources: [pods], verbs: [%s]}]}"
		for _, verb := range []string{"get", "list"} { // the second adds to the first
			if out, ok := c.Kubectl(t, fmt.Sprintf(role, c.Namespace, verb), "auth", "reconcile", "-f", "-"); !ok || !strings.Contains(out, "reconciled") {
				t.Errorf("kubectl auth reconcile: %v\n%s", ok, out)
			}
		}
		if rules := string(c.Get(t, c.Path(rbacVersion, "roles", "reconciled")).Body); !strings.Contains(rules, `"get"`) ||
			!strings.Contains(rules, `"list"`) {
			t.Errorf("the reconciled role is %s", rules)
		}
	}},
}
