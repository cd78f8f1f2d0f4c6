package concepts

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
)

const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"
)

// stranger returns a client that starts without any permission, and its name. It is an account, since who impersonates must
// be somebody in the first place.
func (c *cluster) stranger(t testing.TB) (*client, string) {
	t.Helper()
	c.accountOnce(t)
	return c.bearer(t, c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{})), "system:serviceaccount:" + c.namespace + ":robot"
}

// actAs asks the server who the client is while it acts as the headers say.
func (c *client) actAs(t testing.TB, headers ...string) answer {
	t.Helper()
	return c.send(t, http.MethodPost, selfReviews, header(headers), selfSubjectReview)
}

// Section "User impersonation".
var impersonation = []promise{
	{"who may do all acts as any user, with any uid, group and more", func(t *testing.T, c *cluster) {
		user := selfReview(t, c.actAs(t, impersonateUser, "joe", impersonateUID, "u-1", impersonateGroup, "dev",
			impersonateExtra+"Scopes", "read", impersonateExtra+"Example.com%2fTeam", "blue").want(t, http.StatusCreated))
		want := authenticationv1.UserInfo{Username: "joe", UID: "u-1", Groups: []string{"dev", authenticated},
			Extra: map[string]authenticationv1.ExtraValue{"scopes": {"read"}, "example.com/team": {"blue"}}}
		if !reflect.DeepEqual(user, want) {
			t.Errorf("the user is %+v", user)
		}
	}},
	{"the request is made with the permissions of the one acted as", func(t *testing.T, c *cluster) {
		c.as(t, "joe").get(t, c.path("v1", "configmaps")).forbidden(t, `User "joe" cannot list resource "configmaps"`)
		c.as(t, "joe", "system:masters").get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
	}},
	{"service accounts, and anonymous, bring their own groups", func(t *testing.T, c *cluster) {
		c.as(t, "system:serviceaccount:"+c.namespace+":robot").is(t, "system:serviceaccount:"+c.namespace+":robot", c.accountGroups()...)
		c.as(t, "system:serviceaccount:"+c.namespace+":robot", "dev").is(t, "system:serviceaccount:"+c.namespace+":robot", "dev", authenticated)
		c.actAs(t, impersonateUser, "system:anonymous").forbidden(t) // only who is authenticated may ask
		c.as(t, "joe", unauthenticated).get(t, "/api").forbidden(t, `User "joe"`)
	}},
	{"groups, uids and more can't be acted as without a user", func(t *testing.T, c *cluster) {
		for _, headers := range [][]string{{impersonateGroup, "dev"}, {impersonateUID, "u-1"}, {impersonateExtra + "Scopes", "read"}} {
			c.actAs(t, headers...).refused(t, http.StatusBadRequest, "BadRequest", "without impersonating a user name")
		}
	}},
	{"each of user, account, group, uid and extra needs a permission to impersonate it", func(t *testing.T, c *cluster) {
		robot, name := c.stranger(t)
		robot.actAs(t, impersonateUser, "joe").forbidden(t)
		c.allowCluster(t, name, rule("impersonate", "users", "joe"))
		robot.actAs(t, impersonateUser, "joe").want(t, http.StatusCreated)
		robot.actAs(t, impersonateUser, "ann").forbidden(t)
		for _, more := range []struct {
			headers []string
			rule    rbacv1.PolicyRule
		}{
			{[]string{impersonateGroup, "dev"}, rule("impersonate", "groups", "dev")},
			{[]string{impersonateUID, "u-1"}, rule("impersonate", "uids.authentication.k8s.io", "u-1")},
			{[]string{impersonateExtra + "Scopes", "read"}, rule("impersonate", "userextras.authentication.k8s.io/scopes", "read")},
		} {
			headers := append([]string{impersonateUser, "joe"}, more.headers...)
			robot.actAs(t, headers...).forbidden(t)
			c.allowCluster(t, name, more.rule)
			robot.actAs(t, headers...).want(t, http.StatusCreated)
			headers[3] = "other"
			robot.actAs(t, headers...).forbidden(t)
		}
		robot.actAs(t, impersonateUser, "joe", impersonateGroup, "system:masters").forbidden(t)
		account := "system:serviceaccount:" + c.namespace + ":default"
		robot.actAs(t, impersonateUser, account).forbidden(t)
		c.allow(t, name, rule("impersonate", "serviceaccounts", "default"))
		robot.actAs(t, impersonateUser, account).want(t, http.StatusCreated)
	}},
	{"kubectl --as, --as-group, --as-uid and --as-user-extra act as somebody else", func(t *testing.T, c *cluster) {
		out, ok := c.kubectl(t, "", "auth", "whoami", "--as=joe", "--as-group=dev", "--as-uid=u-1", "--as-user-extra=scopes=read")
		for _, part := range []string{"joe", "[dev system:authenticated]", "u-1", "scopes", "[read]"} {
			if !ok || !strings.Contains(out, part) {
				t.Errorf("kubectl auth whoami lacks %s: %v\n%s", part, ok, out)
			}
		}
		if out, ok := c.kubectl(t, "", "get", "configmaps", "--as=joe"); ok || !strings.Contains(out,
			`Error from server (Forbidden): configmaps is forbidden: User "joe" cannot list`) {
			t.Errorf("kubectl get as joe: %v\n%s", ok, out)
		}
	}},
}

// tokenAs returns a client of a bearer token that acts as somebody else.
func (c *cluster) tokenAs(t testing.TB, token, user string, groups ...string) *client {
	t.Helper()
	return c.with(t, func(config *rest.Config) {
		config.BearerToken, config.Impersonate = token, rest.ImpersonationConfig{UserName: user, Groups: groups}
	})
}

// constrainedImpersonation are the promises of KEP-5284: to act as somebody, but only for some requests.
var constrainedImpersonation = []promise{
	{"who may impersonate:user-info acts as that user, for the verbs that impersonate-on:user-info grants", func(t *testing.T, c *cluster) {
		_, name := c.stranger(t)
		token := c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{})
		joe := c.tokenAs(t, token, "joe")
		c.allow(t, "joe", rule("get,list", "configmaps"))
		joe.get(t, c.path("v1", "configmaps")).forbidden(t)
		c.allowCluster(t, name, rule("impersonate:user-info", "users.authentication.k8s.io", "joe"))
		joe.get(t, c.path("v1", "configmaps")).forbidden(t)
		c.allow(t, name, rule("impersonate-on:user-info:list", "configmaps"))
		joe.get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
		joe.get(t, c.path("v1", "configmaps", "kube-root-ca.crt")).forbidden(t)
		c.tokenAs(t, token, "ann").get(t, c.path("v1", "configmaps")).forbidden(t)
		c.tokenAs(t, token, "joe", "dev").get(t, c.path("v1", "configmaps")).forbidden(t)
		c.allowCluster(t, name, rule("impersonate:user-info", "groups.authentication.k8s.io"))
		c.tokenAs(t, token, "joe", "dev").get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
		c.tokenAs(t, token, "joe", "system:masters").get(t, c.path("v1", "configmaps")).forbidden(t)
	}},
	{"who may impersonate:serviceaccount acts as accounts of a namespace", func(t *testing.T, c *cluster) {
		_, name := c.stranger(t)
		token := c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{})
		other := c.tokenAs(t, token, "system:serviceaccount:"+c.namespace+":other")
		c.allow(t, "system:serviceaccount:"+c.namespace+":other", rule("list", "configmaps"))
		c.allow(t, name, rule("impersonate:serviceaccount", "serviceaccounts.authentication.k8s.io"),
			rule("impersonate-on:serviceaccount:list", "configmaps"))
		other.get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
		c.tokenAs(t, token, "system:serviceaccount:default:other").get(t, c.path("v1", "configmaps")).forbidden(t)
		c.tokenAs(t, token, "joe").get(t, c.path("v1", "configmaps")).forbidden(t)
	}},
	{"who may impersonate:arbitrary-node acts as any node; impersonate:associated-node, as the one its Pod is on", func(t *testing.T, c *cluster) {
		_, name := c.stranger(t)
		c.node(t, c.namespace)
		c.podOn(t, "p", "robot", c.namespace)
		token, bound := c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{}), c.issueToken(t, "robot", boundTo("Pod", "p"))
		services := c.path("v1", "services")
		c.allow(t, name, rule("impersonate-on:associated-node:list,impersonate-on:arbitrary-node:list", "services"))
		c.tokenAs(t, bound, "system:node:"+c.namespace).get(t, services).forbidden(t)
		c.allowCluster(t, name, rule("impersonate:associated-node", "nodes.authentication.k8s.io"))
		c.tokenAs(t, bound, "system:node:"+c.namespace).get(t, "/api/v1/services").forbidden(t)
		c.tokenAs(t, bound, "system:node:"+c.namespace).get(t, services).want(t, http.StatusOK)
		c.tokenAs(t, bound, "system:node:other").get(t, services).forbidden(t)
		c.tokenAs(t, token, "system:node:"+c.namespace).get(t, services).forbidden(t)
		c.allowCluster(t, name, rule("impersonate:arbitrary-node", "nodes.authentication.k8s.io"))
		c.tokenAs(t, token, "system:node:other").get(t, services).want(t, http.StatusOK)
	}},
}
