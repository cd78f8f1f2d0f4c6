package concepts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// forbidden fails the test unless the request is refused for want of a permission.
func (a answer) forbidden(t testing.TB, parts ...string) {
	t.Helper()
	a.refused(t, http.StatusForbidden, "Forbidden", parts...)
}

// verbRequests are requests by the verb that they need; their object is configmaps/NAME.
var verbRequests = map[string]func(t testing.TB, c *client, path string) answer{
	"get":  func(t testing.TB, c *client, path string) answer { return c.get(t, path+"/a") },
	"list": func(t testing.TB, c *client, path string) answer { return c.get(t, path) },
	"watch": func(t testing.TB, c *client, path string) answer {
		return c.get(t, path+"?watch=true&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name=none")
	},
	"create": func(t testing.TB, c *client, path string) answer {
		return c.post(t, path+"?dryRun=All", configMap("b", nil))
	},
	"update": func(t testing.TB, c *client, path string) answer {
		return c.put(t, path+"/a?dryRun=All", configMap("a", nil))
	},
	"patch": func(t testing.TB, c *client, path string) answer {
		return c.patch(t, mergePatch, path+"/a?dryRun=All", map[string]any{"data": map[string]any{"k": "v"}})
	},
	"delete":           func(t testing.TB, c *client, path string) answer { return c.delete(t, path+"/a?dryRun=All") },
	"deletecollection": func(t testing.TB, c *client, path string) answer { return c.delete(t, path+"?dryRun=All") },
}

// Beside kube-apiserver it is kube-controller-manager that fills the roles view, edit and admin.
var roles = []promise{
	{"every verb needs a permission of its own, for a dry run as for the real thing", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		for granted := range verbRequests {
			c.allow(t, "only-"+granted, rule(granted, "configmaps"))
			client := c.as(t, "only-"+granted)
			for verb, send := range verbRequests {
				if verb == granted {
					send(t, client, path).want(t, http.StatusOK, http.StatusCreated)
				} else {
					send(t, client, path).forbidden(t, fmt.Sprintf(`User "only-%s" cannot %s resource "configmaps" in API group "" in the namespace "%s"`, granted, verb, c.namespace))
				}
			}
		}
	}},
	{"a refusal names the user, the verb, the resource, its group and where, and comes before all else", func(t *testing.T, c *cluster) {
		ann := c.as(t, "ann", "dev")
		missing := c.namespace + "-missing"
		ann.get(t, c.path("v1", "configmaps", "missing")).forbidden(t,
			`configmaps "missing" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "`+c.namespace+`"`)
		ann.get(t, c.global("v1", "namespaces", missing, "pods")).forbidden(t,
			`pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "`+missing+`"`)
		ann.get(t, c.path("apps/v1", "deployments", "d", "scale")).forbidden(t,
			`deployments.apps "d" is forbidden: User "ann" cannot get resource "deployments/scale" in API group "apps" in the namespace "`+c.namespace+`"`)
		ann.get(t, c.global("v1", "nodes")).forbidden(t, `nodes is forbidden: User "ann" cannot list resource "nodes" in API group "" at the cluster scope`)
		ann.delete(t, c.global("v1", "nodes", "n")).forbidden(t, `nodes "n" is forbidden: User "ann" cannot delete resource "nodes" in API group "" at the cluster scope`)
		ann.get(t, "/apis/example.com/v1/things").forbidden(t, `things.example.com is forbidden: User "ann" cannot list resource "things" in API group "example.com" at the cluster scope`)
		ann.get(t, "/missing").forbidden(t, `forbidden: User "ann" cannot get path "/missing"`)
		refusal := ann.get(t, c.path("v1", "configmaps", "missing"))
		if details, _ := refusal.value(t, "details").(map[string]any); details["name"] != "missing" || details["kind"] != "configmaps" {
			t.Errorf("the refusal is of %v", details)
		}
		ann.post(t, c.path("v1", "configmaps"), "no JSON").forbidden(t)

		c.get(t, c.path("v1", "configmaps", "missing")).refused(t, http.StatusNotFound, "NotFound")
		c.get(t, "/missing").want(t, http.StatusNotFound)
	}},
	{"a Role counts in its namespace, a ClusterRole where it is bound", func(t *testing.T, c *cluster) {
		c.allow(t, "ann", rule("list", "configmaps"))
		ann := c.as(t, "ann")
		ann.get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
		ann.get(t, "/api/v1/namespaces/default/configmaps").forbidden(t)
		ann.get(t, "/api/v1/configmaps").forbidden(t, "at the cluster scope")

		everywhere := "reader-" + c.namespace
		c.allowCluster(t, everywhere, rule("list", "configmaps"))
		for _, path := range []string{c.path("v1", "configmaps"), "/api/v1/namespaces/default/configmaps", "/api/v1/configmaps"} {
			c.as(t, everywhere).get(t, path).want(t, http.StatusOK)
		}
		c.bind(t, "ClusterRole/view", "User/viewer")
		c.awaitGrant(t, "viewer", c.namespace, rule("list", "configmaps"))
		c.as(t, "viewer").get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
		c.as(t, "viewer").get(t, "/api/v1/configmaps").forbidden(t)
	}},
	{"a binding is for users, groups and service accounts; what is deleted counts no more", func(t *testing.T, c *cluster) {
		c.bind(t, "ClusterRole/view", "Group/dev", "ServiceAccount/robot", "Group/system:serviceaccounts:"+c.namespace+"-other")
		robot := c.as(t, "system:serviceaccount:"+c.namespace+":robot")
		eventually(t, "robot may list", func() bool { return robot.get(t, c.path("v1", "pods")).Code == http.StatusOK })
		c.as(t, "ann", "dev").get(t, c.path("v1", "pods")).want(t, http.StatusOK)
		c.as(t, "ann", "ops").get(t, c.path("v1", "pods")).forbidden(t)
		c.as(t, "system:serviceaccount:"+c.namespace+":other").get(t, c.path("v1", "pods")).forbidden(t)
		c.as(t, "system:serviceaccount:"+c.namespace+"-other:x").get(t, c.path("v1", "pods")).want(t, http.StatusOK)
		c.delete(t, c.path("rbac.authorization.k8s.io/v1", "rolebindings")).want(t, http.StatusOK)
		eventually(t, "robot may list no more", func() bool { return robot.get(t, c.path("v1", "pods")).Code == http.StatusForbidden })
	}},
	{"resourceNames restrict a rule to objects, and to lists and watches that select them by name", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		for _, name := range []string{"a", "b"} {
			c.post(t, path, configMap(name, nil)).want(t, http.StatusCreated)
		}
		c.allow(t, "ann", rule("get,list,watch,update,create,delete,deletecollection", "configmaps", "a"))
		ann := c.as(t, "ann")
		ann.get(t, path+"/a").want(t, http.StatusOK)
		ann.put(t, path+"/a", configMap("a", map[string]string{"k": "v"})).want(t, http.StatusOK)
		ann.get(t, path+"/b").forbidden(t)
		ann.put(t, path+"/b", configMap("b", nil)).forbidden(t)
		ann.get(t, path).forbidden(t)
		ann.get(t, path+"?fieldSelector=metadata.name=a").want(t, http.StatusOK)
		ann.get(t, path+"?fieldSelector=metadata.name=a&watch=true&timeoutSeconds=1").want(t, http.StatusOK)
		ann.get(t, path+"?fieldSelector=metadata.name=b").forbidden(t)
		ann.delete(t, path).forbidden(t)
		ann.post(t, path, configMap("a", nil)).forbidden(t) // a name is not known before the object is
	}},
	{"a subresource is granted by its own name, or in all resources by */name", func(t *testing.T, c *cluster) {
		c.post(t, c.path("apps/v1", "deployments"), deployment("d")).want(t, http.StatusCreated)
		scale, status := c.path("apps/v1", "deployments", "d", "scale"), c.path("apps/v1", "deployments", "d", "status")
		c.allow(t, "whole", rule("get", "deployments.apps"))
		c.allow(t, "scaler", rule("get", "deployments.apps/scale"))
		c.allow(t, "any-scaler", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"*"}, Resources: []string{"*/scale"}})
		c.as(t, "whole").get(t, c.path("apps/v1", "deployments", "d")).want(t, http.StatusOK)
		c.as(t, "whole").get(t, scale).forbidden(t)
		for _, user := range []string{"scaler", "any-scaler"} {
			c.as(t, user).get(t, scale).want(t, http.StatusOK)
			c.as(t, user).get(t, status).forbidden(t)
			c.as(t, user).get(t, c.path("apps/v1", "deployments", "d")).forbidden(t)
		}
	}},
	{"* stands for all verbs, groups, resources and subresources; nonResourceURLs may end in it", func(t *testing.T, c *cluster) {
		c.allow(t, "owner", rule("*", "*.*"))
		owner := c.as(t, "owner")
		owner.post(t, c.path("apps/v1", "deployments"), deployment("d")).want(t, http.StatusCreated)
		owner.get(t, c.path("apps/v1", "deployments", "d", "scale")).want(t, http.StatusOK)
		owner.delete(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
		owner.get(t, "/metrics").forbidden(t) // which is no resource
		prober := "prober-" + c.namespace
		c.allowCluster(t, prober, rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz/*", "/metrics"}})
		c.as(t, prober).get(t, "/healthz/ping").want(t, http.StatusOK)
		c.as(t, prober).get(t, "/metrics").want(t, http.StatusOK)
		c.as(t, prober).send(t, http.MethodPost, "/metrics", nil, nil).forbidden(t, `cannot post path "/metrics"`)
		c.as(t, prober).get(t, "/metrics/slis").forbidden(t)
	}},
	{"who may only patch can't create by applying, and who may only update can't by putting", func(t *testing.T, c *cluster) {
		c.allow(t, "ann", rule("patch,update", "configmaps"), rule("update", "leases.coordination.k8s.io"))
		ann := c.as(t, "ann")
		ann.patch(t, applyPatch, c.path("v1", "configmaps", "new")+"?fieldManager=m", configMap("new", nil)).
			forbidden(t, `configmaps "new" is forbidden: User "ann" cannot create resource "configmaps"`)
		lease := map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "new"}}
		ann.put(t, c.path("coordination.k8s.io/v1", "leases", "new"), lease).forbidden(t, `cannot create resource "leases"`)
		created := c.put(t, c.path("coordination.k8s.io/v1", "leases", "new"), lease).want(t, http.StatusCreated)
		ann.put(t, c.path("coordination.k8s.io/v1", "leases", "new"), created.Body).want(t, http.StatusOK)
	}},
	{"view reads all but Secrets and roles, edit also writes, admin also hands out roles, in the namespace", func(t *testing.T, c *cluster) {
		for _, role := range []string{"view", "edit", "admin"} {
			c.bind(t, "ClusterRole/"+role, "User/"+role)
			c.awaitGrant(t, role, c.namespace, rule("list", "pods"))
		}
		const rbac = "rbac.authorization.k8s.io/v1"
		binding := map[string]any{"metadata": map[string]any{"generateName": "b-"},
			"roleRef": roleRef("ClusterRole/edit"), "subjects": c.subjects([]string{"User/joe"})}
		for _, check := range []struct {
			send  func(c *client) answer
			roles string
		}{
			{func(c2 *client) answer { return c2.get(t, c.path("apps/v1", "deployments")) }, "view edit admin"},
			{func(c2 *client) answer { return c2.get(t, c.path("v1", "resourcequotas")) }, "view edit admin"},
			{func(c2 *client) answer { return c2.get(t, c.path("v1", "secrets")) }, "edit admin"},
			{func(c2 *client) answer {
				return c2.post(t, c.path("v1", "configmaps")+"?dryRun=All", configMap("x", nil))
			}, "edit admin"},
			{func(c2 *client) answer { return c2.get(t, c.path(rbac, "roles")) }, "admin"},
			{func(c2 *client) answer { return c2.post(t, c.path(rbac, "rolebindings")+"?dryRun=All", binding) }, "admin"},
			{func(c2 *client) answer { return c2.delete(t, c.path("v1", "resourcequotas")) }, ""},
			{func(c2 *client) answer { return c2.delete(t, c.global("v1", "namespaces", c.namespace)+"?dryRun=All") }, ""},
			{func(c2 *client) answer { return c2.get(t, c.global("v1", "nodes")) }, ""},
		} {
			for _, role := range []string{"view", "edit", "admin"} {
				answer := check.send(c.as(t, role))
				if allowed := answer.Code < 300; allowed != strings.Contains(check.roles, role) {
					t.Errorf("%s for %s: %d", answer.request, role, answer.Code)
				}
			}
		}
	}},
	{"an aggregated ClusterRole has the rules of those that its labels select, also of later ones", func(t *testing.T, c *cluster) {
		c.bind(t, "ClusterRole/view", "User/viewer")
		widget := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: c.namespace, Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
			Rules:      []rbacv1.PolicyRule{rule("list", "widgets."+c.namespace+".example.com")},
		}
		if _, err := c.kube.RbacV1().ClusterRoles().Create(t.Context(), widget, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitGrant(t, "viewer", c.namespace, widget.Rules[0])
		c.delete(t, c.global("rbac.authorization.k8s.io/v1", "clusterroles", c.namespace)).want(t, http.StatusOK)
		eventually(t, "view has lost the rule", func() bool {
			return c.as(t, "viewer").get(t, c.path(c.namespace+".example.com/v1", "widgets")).Code == http.StatusForbidden
		})
	}},
}

// Section "Auto-reconciliation" of RBAC's default roles.
func TestRoleReconciliation(t *testing.T) {
	engines(t, func(t *testing.T, engine harness.Engine) {
		t.Log("at its start the server gives default roles and bindings back what they lack, unless an annotation forbids it")
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		c := newCluster(t, server.Config(t), server, 0)
		const path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
		extra := `[{"op":"replace","path":"/rules","value":[{"verbs":["get"],"nonResourceURLs":["/extra"]}]}]`
		c.patch(t, jsonPatch, path+"system:discovery", extra).want(t, http.StatusOK)
		c.patch(t, jsonPatch, path+"system:basic-user", extra).want(t, http.StatusOK)
		c.patch(t, mergePatch, path+"system:basic-user", `{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}}}`).want(t, http.StatusOK)
		c.delete(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:discovery").want(t, http.StatusOK)

		server.Stop(t)
		server.Start(t)
		rules := func(role string) string {
			return fmt.Sprint(c.get(t, path+role).want(t, http.StatusOK).value(t, "rules"))
		}
		eventually(t, "the default role has its rules again", func() bool {
			return strings.Contains(rules("system:discovery"), "/openapi") && strings.Contains(rules("system:discovery"), "/extra")
		})
		if got := rules("system:basic-user"); !strings.Contains(got, "/extra") || strings.Contains(got, "selfsubjectreviews") {
			t.Errorf("the role that is not to be updated has %s", got)
		}
		eventually(t, "the default binding is there again", func() bool {
			return c.get(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:discovery").Code == http.StatusOK
		})
	})
}
