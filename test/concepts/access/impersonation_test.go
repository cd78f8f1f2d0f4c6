package access

import (
	"net/http"
	"reflect"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
)

const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"
)

// stranger returns a client without any permissions, and its name. It is a service account, since only authenticated users can
// impersonate.
func stranger(t testing.TB, c *kit.Cluster) (*kit.Client, string) {
	t.Helper()
	accountOnce(t, c)
	return c.Bearer(t, issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{})), "system:serviceaccount:" + c.Namespace + ":robot"
}

// actAs requests the client's identity with these impersonation headers.
func actAs(t testing.TB, c *kit.Client, headers ...string) kit.Answer {
	t.Helper()
	return c.Send(t, http.MethodPost, kit.SelfReviews, kit.Header(headers), kit.SelfSubjectReview)
}

// Section "User impersonation".
var impersonation = []kit.Promise{
	{Statement: "a user with all permissions may impersonate any user, with any uid, groups and extra", Proof: func(t *testing.T, c *kit.Cluster) {
		user := kit.SelfReview(t, actAs(t, c.Client, impersonateUser, "joe", impersonateUID, "u-1", impersonateGroup, "dev",
			impersonateExtra+"Scopes", "read", impersonateExtra+"Example.com%2fTeam", "blue").Created(t))
		want := authenticationv1.UserInfo{Username: "joe", UID: "u-1", Groups: []string{"dev", authenticated},
			Extra: map[string]authenticationv1.ExtraValue{"scopes": {"read"}, "example.com/team": {"blue"}}}
		if !reflect.DeepEqual(user, want) {
			t.Errorf("the user is %+v", user)
		}
	}},
	{Statement: "the request has the permissions of the impersonated user", Proof: func(t *testing.T, c *kit.Cluster) {
		c.As(t, "joe").Get(t, c.Path("v1", "configmaps")).Forbidden(t, `User "joe" cannot list resource "configmaps"`)
		c.As(t, "joe", "system:masters").Get(t, c.Path("v1", "configmaps")).OK(t)
	}},
	{Statement: "service accounts and the anonymous user have their usual groups when impersonated", Proof: func(t *testing.T, c *kit.Cluster) {
		c.As(t, "system:serviceaccount:"+c.Namespace+":robot").Is(t, "system:serviceaccount:"+c.Namespace+":robot", accountGroups(c)...)
		c.As(t, "system:serviceaccount:"+c.Namespace+":robot", "dev").Is(t, "system:serviceaccount:"+c.Namespace+":robot", "dev", authenticated)
		actAs(t, c.Client, impersonateUser, "system:anonymous").Forbidden(t) // only authenticated users may do this
		c.As(t, "joe", unauthenticated).Get(t, "/api").Forbidden(t, `User "joe"`)
	}},
	{Statement: "groups, uids and extra can't be impersonated without a user", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, headers := range [][]string{{impersonateGroup, "dev"}, {impersonateUID, "u-1"}, {impersonateExtra + "Scopes", "read"}} {
			actAs(t, c.Client, headers...).BadRequest(t, "without impersonating a user name")
		}
	}},
	{Statement: "impersonating a user, account, group, uid or extra each needs its own permission", Proof: func(t *testing.T, c *kit.Cluster) {
		robot, name := stranger(t, c)
		actAs(t, robot, impersonateUser, "joe").Forbidden(t)
		c.GrantEverywhere(t, name, kit.Rule("impersonate", "users", "joe"))
		actAs(t, robot, impersonateUser, "joe").Created(t)
		actAs(t, robot, impersonateUser, "ann").Forbidden(t)
		for _, more := range []struct {
			headers []string
			rule    rbacv1.PolicyRule
		}{
			{[]string{impersonateGroup, "dev"}, kit.Rule("impersonate", "groups", "dev")},
			{[]string{impersonateUID, "u-1"}, kit.Rule("impersonate", "uids.authentication.k8s.io", "u-1")},
			{[]string{impersonateExtra + "Scopes", "read"}, kit.Rule("impersonate", "userextras.authentication.k8s.io/scopes", "read")},
		} {
			headers := append([]string{impersonateUser, "joe"}, more.headers...)
			actAs(t, robot, headers...).Forbidden(t)
			c.GrantEverywhere(t, name, more.rule)
			actAs(t, robot, headers...).Created(t)
			headers[3] = "other"
			actAs(t, robot, headers...).Forbidden(t)
		}
		actAs(t, robot, impersonateUser, "joe", impersonateGroup, "system:masters").Forbidden(t)
		account := "system:serviceaccount:" + c.Namespace + ":default"
		actAs(t, robot, impersonateUser, account).Forbidden(t)
		c.Grant(t, name, kit.Rule("impersonate", "serviceaccounts", "default"))
		actAs(t, robot, impersonateUser, account).Created(t)
	}},
}

// tokenAs returns a client with a bearer token that impersonates a user.
func tokenAs(t testing.TB, c *kit.Cluster, token, user string, groups ...string) *kit.Client {
	t.Helper()
	return c.ClientWith(t, func(config *rest.Config) {
		config.BearerToken, config.Impersonate = token, rest.ImpersonationConfig{UserName: user, Groups: groups}
	})
}

// constrainedImpersonation are the promises of KEP-5284: impersonation only for some requests.
var constrainedImpersonation = []kit.Promise{
	{Statement: "impersonate:user-info allows impersonating a user for the verbs granted by impersonate-on:user-info", Proof: func(t *testing.T, c *kit.Cluster) {
		_, name := stranger(t, c)
		token := issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{})
		joe := tokenAs(t, c, token, "joe")
		c.Grant(t, "joe", kit.Rule("get,list", "configmaps"))
		joe.Get(t, c.Path("v1", "configmaps")).Forbidden(t)
		c.GrantEverywhere(t, name, kit.Rule("impersonate:user-info", "users.authentication.k8s.io", "joe"))
		joe.Get(t, c.Path("v1", "configmaps")).Forbidden(t)
		c.Grant(t, name, kit.Rule("impersonate-on:user-info:list", "configmaps"))
		joe.Get(t, c.Path("v1", "configmaps")).OK(t)
		joe.Get(t, c.Path("v1", "configmaps", "kube-root-ca.crt")).Forbidden(t)
		tokenAs(t, c, token, "ann").Get(t, c.Path("v1", "configmaps")).Forbidden(t)
		tokenAs(t, c, token, "joe", "dev").Get(t, c.Path("v1", "configmaps")).Forbidden(t)
		c.GrantEverywhere(t, name, kit.Rule("impersonate:user-info", "groups.authentication.k8s.io"))
		tokenAs(t, c, token, "joe", "dev").Get(t, c.Path("v1", "configmaps")).OK(t)
		tokenAs(t, c, token, "joe", "system:masters").Get(t, c.Path("v1", "configmaps")).Forbidden(t)
	}},
	{Statement: "impersonate:serviceaccount allows impersonating accounts of a namespace", Proof: func(t *testing.T, c *kit.Cluster) {
		_, name := stranger(t, c)
		token := issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{})
		other := tokenAs(t, c, token, "system:serviceaccount:"+c.Namespace+":other")
		c.Grant(t, "system:serviceaccount:"+c.Namespace+":other", kit.Rule("list", "configmaps"))
		c.Grant(t, name, kit.Rule("impersonate:serviceaccount", "serviceaccounts.authentication.k8s.io"),
			kit.Rule("impersonate-on:serviceaccount:list", "configmaps"))
		other.Get(t, c.Path("v1", "configmaps")).OK(t)
		tokenAs(t, c, token, "system:serviceaccount:default:other").Get(t, c.Path("v1", "configmaps")).Forbidden(t)
		tokenAs(t, c, token, "joe").Get(t, c.Path("v1", "configmaps")).Forbidden(t)
	}},
	{Statement: "impersonate:arbitrary-node allows impersonating any node; impersonate:associated-node, the node of the Pod", Proof: func(t *testing.T, c *kit.Cluster) {
		_, name := stranger(t, c)
		node(t, c, c.Namespace)
		podOn(t, c, "p", "robot", c.Namespace)
		token, bound := issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{}), issueToken(t, c, "robot", boundTo("Pod", "p"))
		services := c.Path("v1", "services")
		c.Grant(t, name, kit.Rule("impersonate-on:associated-node:list,impersonate-on:arbitrary-node:list", "services"))
		tokenAs(t, c, bound, "system:node:"+c.Namespace).Get(t, services).Forbidden(t)
		c.GrantEverywhere(t, name, kit.Rule("impersonate:associated-node", "nodes.authentication.k8s.io"))
		tokenAs(t, c, bound, "system:node:"+c.Namespace).Get(t, "/api/v1/services").Forbidden(t)
		tokenAs(t, c, bound, "system:node:"+c.Namespace).Get(t, services).OK(t)
		tokenAs(t, c, bound, "system:node:other").Get(t, services).Forbidden(t)
		tokenAs(t, c, token, "system:node:"+c.Namespace).Get(t, services).Forbidden(t)
		c.GrantEverywhere(t, name, kit.Rule("impersonate:arbitrary-node", "nodes.authentication.k8s.io"))
		tokenAs(t, c, token, "system:node:other").Get(t, services).OK(t)
	}},
}
