package access

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// verbRequests are requests by the verb that they need. Their object is configmaps/NAME.
var verbRequests = map[string]func(t testing.TB, c *kit.Client, path string) kit.Answer{
	"get":  func(t testing.TB, c *kit.Client, path string) kit.Answer { return c.Get(t, path+"/a") },
	"list": func(t testing.TB, c *kit.Client, path string) kit.Answer { return c.Get(t, path) },
	"watch": func(t testing.TB, c *kit.Client, path string) kit.Answer {
		return c.Get(t, path+"?watch=true&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name=none")
	},
	"create": func(t testing.TB, c *kit.Client, path string) kit.Answer {
		return c.Post(t, path+"?dryRun=All", kit.ConfigMap("b", nil))
	},
	"update": func(t testing.TB, c *kit.Client, path string) kit.Answer {
		return c.Put(t, path+"/a?dryRun=All", kit.ConfigMap("a", nil))
	},
	"patch": func(t testing.TB, c *kit.Client, path string) kit.Answer {
		return c.Patch(t, kit.MergePatch, path+"/a?dryRun=All", map[string]any{"data": map[string]any{"k": "v"}})
	},
	"delete":           func(t testing.TB, c *kit.Client, path string) kit.Answer { return c.Delete(t, path+"/a?dryRun=All") },
	"deletecollection": func(t testing.TB, c *kit.Client, path string) kit.Answer { return c.Delete(t, path+"?dryRun=All") },
}

// With kube-apiserver, kube-controller-manager fills the roles view, edit and admin.
var roles = []kit.Promise{
	{Statement: "every verb needs its own permission, even for a dry run", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		for granted := range verbRequests {
			c.Grant(t, "only-"+granted, kit.Rule(granted, "configmaps"))
			client := c.As(t, "only-"+granted)
			for verb, send := range verbRequests {
				if verb == granted {
					send(t, client, path).Want(t, http.StatusOK, http.StatusCreated)
				} else {
					send(t, client, path).Forbidden(t, fmt.Sprintf(`User "only-%s" cannot %s resource "configmaps" in API group "" in the namespace "%s"`, granted, verb, c.Namespace))
				}
			}
		}
	}},
	{Statement: "a denial names the user, the verb, the resource, its group and the scope, and precedes all other checks", Proof: func(t *testing.T, c *kit.Cluster) {
		ann := c.As(t, "ann", "dev")
		missing := c.Namespace + "-missing"
		ann.Get(t, c.Path("v1", "configmaps", "missing")).Forbidden(t,
			`configmaps "missing" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "`+c.Namespace+`"`)
		ann.Get(t, c.ClusterPath("v1", "namespaces", missing, "pods")).Forbidden(t,
			`pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "`+missing+`"`)
		ann.Get(t, c.Path("apps/v1", "deployments", "d", "scale")).Forbidden(t,
			`deployments.apps "d" is forbidden: User "ann" cannot get resource "deployments/scale" in API group "apps" in the namespace "`+c.Namespace+`"`)
		ann.Get(t, c.ClusterPath("v1", "nodes")).Forbidden(t, `nodes is forbidden: User "ann" cannot list resource "nodes" in API group "" at the cluster scope`)
		ann.Delete(t, c.ClusterPath("v1", "nodes", "n")).Forbidden(t, `nodes "n" is forbidden: User "ann" cannot delete resource "nodes" in API group "" at the cluster scope`)
		ann.Get(t, "/apis/example.com/v1/things").Forbidden(t, `things.example.com is forbidden: User "ann" cannot list resource "things" in API group "example.com" at the cluster scope`)
		ann.Get(t, "/missing").Forbidden(t, `forbidden: User "ann" cannot get path "/missing"`)
		refusal := ann.Get(t, c.Path("v1", "configmaps", "missing"))
		if details, _ := refusal.Value(t, "details").(map[string]any); details["name"] != "missing" || details["kind"] != "configmaps" {
			t.Errorf("the details of the denial are %v", details)
		}
		ann.Post(t, c.Path("v1", "configmaps"), "no JSON").Forbidden(t)

		c.Get(t, c.Path("v1", "configmaps", "missing")).NotFound(t)
		c.Get(t, "/missing").Want(t, http.StatusNotFound)
	}},
	{Statement: "a Role applies in its namespace, a ClusterRole where it is bound", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Grant(t, "ann", kit.Rule("list", "configmaps"))
		ann := c.As(t, "ann")
		ann.Get(t, c.Path("v1", "configmaps")).OK(t)
		ann.Get(t, "/api/v1/namespaces/default/configmaps").Forbidden(t)
		ann.Get(t, "/api/v1/configmaps").Forbidden(t, "at the cluster scope")

		everywhere := "reader-" + c.Namespace
		c.GrantEverywhere(t, everywhere, kit.Rule("list", "configmaps"))
		for _, path := range []string{c.Path("v1", "configmaps"), "/api/v1/namespaces/default/configmaps", "/api/v1/configmaps"} {
			c.As(t, everywhere).Get(t, path).OK(t)
		}
		c.Bind(t, "ClusterRole/view", "User/viewer")
		c.WaitForGrant(t, "viewer", c.Namespace, kit.Rule("list", "configmaps"))
		c.As(t, "viewer").Get(t, c.Path("v1", "configmaps")).OK(t)
		c.As(t, "viewer").Get(t, "/api/v1/configmaps").Forbidden(t)
	}},
	{Statement: "a binding is for users, groups and service accounts; deleted bindings no longer apply", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Bind(t, "ClusterRole/view", "Group/dev", "ServiceAccount/robot", "Group/system:serviceaccounts:"+c.Namespace+"-other")
		robot := c.As(t, "system:serviceaccount:"+c.Namespace+":robot")
		harness.Eventually(t, "robot may list", func() bool { return robot.Get(t, c.Path("v1", "pods")).Code == http.StatusOK })
		c.As(t, "ann", "dev").Get(t, c.Path("v1", "pods")).OK(t)
		c.As(t, "ann", "ops").Get(t, c.Path("v1", "pods")).Forbidden(t)
		c.As(t, "system:serviceaccount:"+c.Namespace+":other").Get(t, c.Path("v1", "pods")).Forbidden(t)
		c.As(t, "system:serviceaccount:"+c.Namespace+"-other:x").Get(t, c.Path("v1", "pods")).OK(t)
		c.Delete(t, c.Path("rbac.authorization.k8s.io/v1", "rolebindings")).OK(t)
		harness.Eventually(t, "robot may no longer list", func() bool { return robot.Get(t, c.Path("v1", "pods")).Code == http.StatusForbidden })
	}},
	{Statement: "resourceNames restrict a rule to objects, and to lists and watches that select them by name", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		for _, name := range []string{"a", "b"} {
			c.Post(t, path, kit.ConfigMap(name, nil)).Created(t)
		}
		c.Grant(t, "ann", kit.Rule("get,list,watch,update,create,delete,deletecollection", "configmaps", "a"))
		ann := c.As(t, "ann")
		ann.Get(t, path+"/a").OK(t)
		ann.Put(t, path+"/a", kit.ConfigMap("a", map[string]string{"k": "v"})).OK(t)
		ann.Get(t, path+"/b").Forbidden(t)
		ann.Put(t, path+"/b", kit.ConfigMap("b", nil)).Forbidden(t)
		ann.Get(t, path).Forbidden(t)
		ann.Get(t, path+"?fieldSelector=metadata.name=a").OK(t)
		ann.Get(t, path+"?fieldSelector=metadata.name=a&watch=true&timeoutSeconds=1").OK(t)
		ann.Get(t, path+"?fieldSelector=metadata.name=b").Forbidden(t)
		ann.Delete(t, path).Forbidden(t)
		ann.Post(t, path, kit.ConfigMap("a", nil)).Forbidden(t) // the name is not known when an object is created
	}},
	{Statement: "a subresource is granted by its own name, or for all resources by */name", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("d")).Created(t)
		scale, status := c.Path("apps/v1", "deployments", "d", "scale"), c.Path("apps/v1", "deployments", "d", "status")
		c.Grant(t, "whole", kit.Rule("get", "deployments.apps"))
		c.Grant(t, "scaler", kit.Rule("get", "deployments.apps/scale"))
		c.Grant(t, "any-scaler", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"*"}, Resources: []string{"*/scale"}})
		c.As(t, "whole").Get(t, c.Path("apps/v1", "deployments", "d")).OK(t)
		c.As(t, "whole").Get(t, scale).Forbidden(t)
		for _, user := range []string{"scaler", "any-scaler"} {
			c.As(t, user).Get(t, scale).OK(t)
			c.As(t, user).Get(t, status).Forbidden(t)
			c.As(t, user).Get(t, c.Path("apps/v1", "deployments", "d")).Forbidden(t)
		}
	}},
	{Statement: "* stands for all verbs, groups, resources and subresources; nonResourceURLs may end in it", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Grant(t, "owner", kit.Rule("*", "*.*"))
		owner := c.As(t, "owner")
		owner.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("d")).Created(t)
		owner.Get(t, c.Path("apps/v1", "deployments", "d", "scale")).OK(t)
		owner.Delete(t, c.Path("v1", "configmaps")).OK(t)
		owner.Get(t, "/metrics").Forbidden(t) // not a resource
		prober := "prober-" + c.Namespace
		c.GrantEverywhere(t, prober, rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz/*", "/metrics"}})
		c.As(t, prober).Get(t, "/healthz/ping").OK(t)
		c.As(t, prober).Get(t, "/metrics").OK(t)
		c.As(t, prober).Send(t, http.MethodPost, "/metrics", nil, nil).Forbidden(t, `cannot post path "/metrics"`)
		c.As(t, prober).Get(t, "/metrics/slis").Forbidden(t)
	}},
	{Statement: "permission to patch allows applying, but not creating by apply, nor permission to update creating by PUT", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Grant(t, "ann", kit.Rule("patch,update", "configmaps"), kit.Rule("update", "leases.coordination.k8s.io"))
		ann := c.As(t, "ann")
		ann.Patch(t, kit.ApplyPatch, c.Path("v1", "configmaps", "new")+"?fieldManager=m", kit.ConfigMap("new", nil)).
			Forbidden(t, `configmaps "new" is forbidden: User "ann" cannot create resource "configmaps"`)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("old", nil)).Created(t)
		ann.Patch(t, kit.ApplyPatch, c.Path("v1", "configmaps", "old")+"?fieldManager=m", kit.ConfigMap("old", nil)).OK(t)
		c.Grant(t, "ann", kit.Rule("create", "configmaps"))
		ann.Patch(t, kit.ApplyPatch, c.Path("v1", "configmaps", "new")+"?fieldManager=m", kit.ConfigMap("new", nil)).Created(t)
		lease := map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "new"}}
		ann.Put(t, c.Path("coordination.k8s.io/v1", "leases", "new"), lease).Forbidden(t, `cannot create resource "leases"`)
		created := c.Put(t, c.Path("coordination.k8s.io/v1", "leases", "new"), lease).Created(t)
		ann.Put(t, c.Path("coordination.k8s.io/v1", "leases", "new"), created.Body).OK(t)
	}},
	{Statement: "in its namespace, view allows reading all but Secrets and roles, edit also writing, admin also granting roles", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, role := range []string{"view", "edit", "admin"} {
			c.Bind(t, "ClusterRole/"+role, "User/"+role)
			c.WaitForGrant(t, role, c.Namespace, kit.Rule("list", "pods"))
		}
		const rbac = "rbac.authorization.k8s.io/v1"
		// Not edit: while another test has a rule added to it, admin lacks that rule for a moment.
		role := c.Grant(t, "reader", kit.Rule("get", "configmaps"))
		binding := map[string]any{"metadata": map[string]any{"generateName": "b-"},
			"roleRef": kit.RoleRef(role), "subjects": c.Subjects([]string{"User/joe"})}
		for _, check := range []struct {
			send  func(c *kit.Client) kit.Answer
			roles string
		}{
			{func(c2 *kit.Client) kit.Answer { return c2.Get(t, c.Path("apps/v1", "deployments")) }, "view edit admin"},
			{func(c2 *kit.Client) kit.Answer { return c2.Get(t, c.Path("v1", "resourcequotas")) }, "view edit admin"},
			{func(c2 *kit.Client) kit.Answer { return c2.Get(t, c.Path("v1", "secrets")) }, "edit admin"},
			{func(c2 *kit.Client) kit.Answer {
				return c2.Post(t, c.Path("v1", "configmaps")+"?dryRun=All", kit.ConfigMap("x", nil))
			}, "edit admin"},
			{func(c2 *kit.Client) kit.Answer { return c2.Get(t, c.Path(rbac, "roles")) }, "admin"},
			{func(c2 *kit.Client) kit.Answer {
				return c2.Post(t, c.Path(rbac, "rolebindings")+"?dryRun=All", binding)
			}, "admin"},
			{func(c2 *kit.Client) kit.Answer { return c2.Delete(t, c.Path("v1", "resourcequotas")) }, ""},
			{func(c2 *kit.Client) kit.Answer {
				return c2.Delete(t, c.ClusterPath("v1", "namespaces", c.Namespace)+"?dryRun=All")
			}, ""},
			{func(c2 *kit.Client) kit.Answer { return c2.Get(t, c.ClusterPath("v1", "nodes")) }, ""},
		} {
			for _, role := range []string{"view", "edit", "admin"} {
				answer := check.send(c.As(t, role))
				if allowed := answer.Code < 300; allowed != strings.Contains(check.roles, role) {
					t.Errorf("%s for %s: %d", answer.Request, role, answer.Code)
				}
			}
		}
	}},
	{Statement: "an aggregated ClusterRole has the rules of those that its label selector matches, including later ones", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Bind(t, "ClusterRole/view", "User/viewer")
		widget := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
			Rules:      []rbacv1.PolicyRule{kit.Rule("list", "widgets."+c.Namespace+".example.com")},
		}
		kit.Must(c.Kube.RbacV1().ClusterRoles().Create(t.Context(), widget, metav1.CreateOptions{}))(t)
		c.WaitForGrant(t, "viewer", c.Namespace, widget.Rules[0])
		c.Delete(t, c.ClusterPath("rbac.authorization.k8s.io/v1", "clusterroles", c.Namespace)).OK(t)
		harness.Eventually(t, "view has lost the rule", func() bool {
			return c.As(t, "viewer").Get(t, c.Path(c.Namespace+".example.com/v1", "widgets")).Code == http.StatusForbidden
		})
	}},
}

// Section "Auto-reconciliation" of RBAC's default roles.
func TestRoleReconciliation(t *testing.T) {
	kit.OnSQLite(t, func(t *testing.T, engine harness.Engine) {
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		c := kit.NewCluster(t, server.Config(t), server, 0)
		const path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
		extra := `[{"op":"replace","path":"/rules","value":[{"verbs":["get"],"nonResourceURLs":["/extra"]}]}]`
		c.Patch(t, kit.JSONPatch, path+"system:discovery", extra).OK(t)
		c.Patch(t, kit.JSONPatch, path+"system:basic-user", extra).OK(t)
		c.Patch(t, kit.MergePatch, path+"system:basic-user", `{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}}}`).OK(t)
		c.Delete(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:discovery").OK(t)

		server.Stop(t)
		server.Start(t)
		rules := func(role string) string {
			return fmt.Sprint(c.Get(t, path+role).OK(t).Value(t, "rules"))
		}
		harness.Eventually(t, "the default role has its rules again", func() bool {
			return strings.Contains(rules("system:discovery"), "/openapi") && strings.Contains(rules("system:discovery"), "/extra")
		})
		if got := rules("system:basic-user"); !strings.Contains(got, "/extra") || strings.Contains(got, "selfsubjectreviews") {
			t.Errorf("the role without automatic updates has %s", got)
		}
		harness.Eventually(t, "the default binding exists again", func() bool {
			return c.Get(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:discovery").Code == http.StatusOK
		})
	})
}
