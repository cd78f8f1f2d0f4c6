package concepts

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// accessConfig is a server whose access is configured in files. Their formats are apiserver.config.k8s.io/v1.
type accessConfig struct {
	rich, plain, later *issuer
	webhook            *accessWebhook
	kubeconfig         string // of the webhook
	authenticationFile string
	authorizationFile  string
}

// Sections "Using Authentication Configuration" and "Configuring the API server using an authorization config file".
func TestAccessConfiguration(t *testing.T) {
	a := &accessConfig{rich: newIssuer(t), plain: newIssuer(t), later: newIssuer(t), webhook: newAccessWebhook(t)}
	a.kubeconfig = kubeconfigOf(t, a.webhook.Server)
	a.authenticationFile = writeFile(t, "authentication.yaml", string(a.authentication(a.rich, a.plain)))
	a.authorizationFile = writeFile(t, "authorization.yaml", string(a.authorization("guarded")))
	prove(t, []string{"--authentication-config=" + a.authenticationFile, "--authorization-config=" + a.authorizationFile},
		append(a.authenticationPromises(), a.authorizationPromises()...)...)
}

// authentication is a configuration that trusts these issuers, the first with rules and expressions.
func (a *accessConfig) authentication(rich *issuer, plain ...*issuer) []byte {
	trusted := func(i *issuer) string {
		return fmt.Sprintf("{url: %q, certificateAuthority: %q, audiences: ", i.URL, i.authority())
	}
	var text strings.Builder
	fmt.Fprintf(&text, `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}
jwt:
- issuer: %s[sqube, other], audienceMatchPolicy: MatchAny}
  claimValidationRules:
  - {claim: tier, requiredValue: gold}
  - {expression: "claims.exp - claims.nbf <= 86400", message: longer than a day}
  claimMappings:
    username: {expression: "'rich:' + claims.sub"}
    groups: {expression: "claims.roles.split(',').map(role, role)"}
    uid: {claim: oid}
    extra: [{key: example.com/team, valueExpression: claims.team}]
  userValidationRules:
  - {expression: "!user.username.startsWith('rich:system:')", message: names of the system are not for users}
  - {expression: "user.groups.all(group, !group.startsWith('system:'))", message: nor are its groups}
`, trusted(rich))
	for _, i := range plain {
		fmt.Fprintf(&text, "- issuer: %s[sqube]}\n  claimMappings: {username: {claim: sub, prefix: 'plain:'}}\n", trusted(i))
	}
	return []byte(text.String())
}

// authorization is a configuration whose first webhook is asked about the members of some groups, and must answer.
func (a *accessConfig) authorization(groups ...string) []byte {
	webhook := func(name, policy, conditions string) string {
		return fmt.Sprintf(`- {type: Webhook, name: %s, webhook: {timeout: 1s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1,
    authorizedTTL: 1h, unauthorizedTTL: 1h, cacheUnauthorizedRequests: false, failurePolicy: %s,
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}, matchConditions: [%s]}}
`, name, policy, a.kubeconfig, conditions)
	}
	return []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n" +
		webhook("guard", "Deny", fmt.Sprintf(`{expression: "request.groups.exists(group, group in ['%s'])"}, {expression: "request.resourceAttributes.resource != 'events'"}`, strings.Join(groups, "', '"))) +
		webhook("adviser", "NoOpinion", `{expression: "'advised' in request.groups"}`) +
		"- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n")
}

// replaceFile puts another file in place of one, at once.
func replaceFile(t testing.TB, path string, content []byte) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// reloadFailures tells how often the server could not use the file with the configuration of what.
func (c *cluster) reloadFailures(t testing.TB, what string) string {
	t.Helper()
	pattern := regexp.MustCompile(`(?m)^apiserver_` + what + `_config_controller_automatic_reloads_total\{[^}]*status="failure"\} (.*)$`)
	match := pattern.FindSubmatch(c.get(t, "/metrics").want(t, http.StatusOK).Body)
	if match == nil {
		return "0"
	}
	return string(match[1])
}

// proveReload shows that the server uses what a file says anew, and goes on with what it has when that is nonsense.
func (c *cluster) proveReload(t *testing.T, what, file string, next []byte, inForce func() bool) {
	t.Helper()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer replaceFile(t, file, before) // for the next engine
	if inForce() {
		t.Fatal("it is in force before the file says so")
	}
	replaceFile(t, file, next)
	eventually(t, "the file is in force", inForce)
	failures := c.reloadFailures(t, what)
	replaceFile(t, file, bytes.ReplaceAll(next, []byte("kind:"), []byte("kind: Nonsense #")))
	eventually(t, "the server has refused the nonsense", func() bool { return c.reloadFailures(t, what) != failures })
	if !inForce() {
		t.Error("it is not in force any more")
	}
}

func (a *accessConfig) authenticationPromises() []promise {
	rich := func(t *testing.T, changes claims) string {
		all := claims{"sub": "ann", "tier": "gold", "roles": "dev,ops", "oid": "u-1", "team": "blue", "nbf": time.Now().Add(-time.Minute).Unix()}
		maps.Copy(all, changes)
		return a.rich.token(t, all)
	}
	ready := func(t *testing.T, c *cluster) {
		eventually(t, "the issuers are known", func() bool {
			return c.bearer(t, rich(t, nil)).known(t) && c.bearer(t, a.plain.token(t, claims{"sub": "ann"})).known(t)
		})
	}
	return []promise{
		{"anonymous requests are taken only for the paths that the file names", func(t *testing.T, c *cluster) {
			c.anonymous(t).get(t, "/livez").want(t, http.StatusOK)
			c.anonymous(t).get(t, "/readyz").want(t, http.StatusOK)
			for _, path := range []string{"/healthz", "/livez/ping", "/version", "/api"} {
				c.anonymous(t).get(t, path).refused(t, http.StatusUnauthorized, "Unauthorized")
			}
		}},
		{"expressions make user, groups, uid and more of the claims", func(t *testing.T, c *cluster) {
			ready(t, c)
			user := c.bearer(t, rich(t, nil)).is(t, "rich:ann", "dev", "ops", authenticated)
			if want := map[string]authenticationv1.ExtraValue{"example.com/team": {"blue"}}; user.UID != "u-1" || !reflect.DeepEqual(user.Extra, want) {
				t.Errorf("the user is %+v", user)
			}
			c.bearer(t, rich(t, claims{"aud": []string{"third", "other"}})).is(t, "rich:ann", "dev", "ops", authenticated)
		}},
		{"there may be several issuers, each with mappings of its own", func(t *testing.T, c *cluster) {
			ready(t, c)
			c.bearer(t, a.plain.token(t, claims{"sub": "ann", "roles": "dev"})).is(t, "plain:ann", authenticated)
			c.bearer(t, a.later.token(t, claims{"sub": "ann"})).isNobody(t)
		}},
		{"a token that breaks a rule on claims or on users is refused", func(t *testing.T, c *cluster) {
			ready(t, c)
			for _, broken := range []claims{
				{"tier": "silver"},
				{"nbf": time.Now().Add(-25 * time.Hour).Unix()},
				{"sub": "system:admin"},
				{"roles": "system:masters"},
				{"aud": "third"},
				{"roles": nil},
			} {
				if c.bearer(t, rich(t, broken)).known(t) {
					t.Errorf("a token with %v is accepted", broken)
				}
			}
		}},
		{"the authentication file is read again when it changes", func(t *testing.T, c *cluster) {
			ready(t, c)
			token := c.bearer(t, a.later.token(t, claims{"sub": "joe"}))
			c.proveReload(t, "authentication", a.authenticationFile, a.authentication(a.rich, a.plain, a.later), func() bool { return token.known(t) })
			token.is(t, "plain:joe", authenticated)
		}},
	}
}

func (a *accessConfig) authorizationPromises() []promise {
	return []promise{
		{"a webhook is asked about the requests that its conditions match", func(t *testing.T, c *cluster) {
			for _, group := range []string{"guarded", "advised"} {
				c.as(t, a.webhook.user("allow"), group).get(t, c.path("v1", "secrets")).want(t, http.StatusOK)
				c.as(t, a.webhook.user("deny"), group).get(t, c.path("v1", "secrets")).forbidden(t, "not on Sundays")
			}
			free := a.webhook.user("deny")
			c.allow(t, free, rule("list", "configmaps"))
			c.as(t, free, "free").get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
			events := a.webhook.user("allow")
			c.as(t, events, "guarded").get(t, c.path("v1", "events")).forbidden(t)
			if n := len(a.webhook.asked(free)) + len(a.webhook.asked(events)); n != 0 {
				t.Errorf("the webhook was asked %d times about what it is not for", n)
			}
		}},
		// Where nobody else decides, kube-apiserver says that it has failed, not that the user must not.
		{"where a webhook fails, or is too slow, its failurePolicy decides: Deny or NoOpinion", func(t *testing.T, c *cluster) {
			for _, kind := range []string{"broken", "slow"} {
				user := a.webhook.user(kind)
				c.allow(t, user, rule("list", "configmaps"))
				c.as(t, user, "guarded").get(t, c.path("v1", "configmaps")).want(t, http.StatusInternalServerError)
				c.as(t, user, "advised").get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
				c.as(t, user, "advised").get(t, c.path("v1", "secrets")).want(t, http.StatusInternalServerError)
			}
		}},
		{"a condition that can't be evaluated counts as a failure of the webhook", func(t *testing.T, c *cluster) {
			user := a.webhook.user("allow")
			c.bindCluster(t, "ClusterRole/system:monitoring", "Group/"+c.namespace)
			free := c.as(t, user, c.namespace)
			eventually(t, "the group may read metrics", func() bool { return free.get(t, "/metrics").Code == http.StatusOK })
			failed := c.as(t, user, c.namespace, "guarded").get(t, "/metrics").want(t, http.StatusInternalServerError)
			if !strings.Contains(string(failed.Body), "no such key: resourceAttributes") { // which a path has not
				t.Errorf("the answer is %s", failed.Body)
			}
		}},
		{"the authorization file is read again when it changes", func(t *testing.T, c *cluster) {
			user := a.webhook.user("deny")
			c.allow(t, user, rule("list", "configmaps"))
			client := c.as(t, user, "watched")
			c.proveReload(t, "authorization", a.authorizationFile, a.authorization("guarded", "watched"), func() bool {
				return client.get(t, c.path("v1", "configmaps")).want(t, http.StatusOK, http.StatusForbidden).Code == http.StatusForbidden
			})
		}},
	}
}
