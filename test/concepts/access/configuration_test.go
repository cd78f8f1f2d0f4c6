package access

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

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
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
	a.authenticationFile = kit.WriteFile(t, "authentication.yaml", string(a.authentication(a.rich, a.plain)))
	a.authorizationFile = kit.WriteFile(t, "authorization.yaml", string(a.authorization("guarded")))
	kit.Prove(t, []string{"--authentication-config=" + a.authenticationFile, "--authorization-config=" + a.authorizationFile},
		append(a.authenticationPromises(), a.authorizationPromises()...)...)
}

// authentication returns a configuration that trusts these issuers, the first with rules and expressions.
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

// authorization returns a configuration whose first webhook is consulted about members of some groups, and must respond.
func (a *accessConfig) authorization(groups ...string) []byte {
	call := func(name, timeout, policy, conditions string) string {
		return fmt.Sprintf(`- {type: Webhook, name: %s, webhook: {timeout: %s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1,
    authorizedTTL: 1h, unauthorizedTTL: 1h, cacheUnauthorizedRequests: false, failurePolicy: %s,
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}, matchConditions: [%s]}}
`, name, timeout, policy, a.kubeconfig, conditions)
	}
	// Only users whose requests time out have a short timeout: on a busy machine, any response may take more than a second.
	webhook := func(name, policy, conditions string) string {
		return call(name, "30s", policy, `{expression: "!request.user.startsWith('slow-')"}, `+conditions) +
			call("hasty-"+name, "1s", policy, `{expression: "request.user.startsWith('slow-')"}, `+conditions)
	}
	return []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n" +
		webhook("guard", "Deny", fmt.Sprintf(`{expression: "request.groups.exists(group, group in ['%s'])"}, {expression: "request.resourceAttributes.resource != 'events'"}`, strings.Join(groups, "', '"))) +
		webhook("adviser", "NoOpinion", `{expression: "'advised' in request.groups"}`) +
		"- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n")
}

// replaceFile replaces a file atomically.
func replaceFile(t testing.TB, path string, content []byte) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	harness.Must(t, os.WriteFile(next, content, 0o600))
	harness.Must(t, os.Rename(next, path))
}

// reloadFailures returns how often the server failed to load the configuration file of what.
func reloadFailures(t testing.TB, c *kit.Cluster, what string) string {
	t.Helper()
	pattern := regexp.MustCompile(`(?m)^apiserver_` + what + `_config_controller_automatic_reloads_total\{[^}]*status="failure"\} (.*)$`)
	match := pattern.FindSubmatch(c.Get(t, "/metrics").OK(t).Body)
	if match == nil {
		return "0"
	}
	return string(match[1])
}

// proveReload checks that the server applies changes of a file, and keeps its configuration if the new one is invalid.
func proveReload(t *testing.T, c *kit.Cluster, what, file string, next []byte, inEffect func() bool) {
	t.Helper()
	before := kit.Must(os.ReadFile(file))(t)
	defer replaceFile(t, file, before) // for the next engine
	if inEffect() {
		t.Fatal("the new configuration is in effect before the file has it")
	}
	replaceFile(t, file, next)
	harness.Eventually(t, "the file is in effect", inEffect)
	failures := reloadFailures(t, c, what)
	replaceFile(t, file, bytes.ReplaceAll(next, []byte("kind:"), []byte("kind: Nonsense #")))
	harness.Eventually(t, "the server has rejected the invalid file", func() bool { return reloadFailures(t, c, what) != failures })
	if !inEffect() {
		t.Error("the previous configuration is no longer in effect")
	}
}

func (a *accessConfig) authenticationPromises() []kit.Promise {
	rich := func(t *testing.T, changes claims) string {
		all := claims{"sub": "ann", "tier": "gold", "roles": "dev,ops", "oid": "u-1", "team": "blue", "nbf": time.Now().Add(-time.Minute).Unix()}
		maps.Copy(all, changes)
		return a.rich.token(t, all)
	}
	ready := func(t *testing.T, c *kit.Cluster) {
		harness.Eventually(t, "the issuers are known", func() bool {
			return c.Bearer(t, rich(t, nil)).IsAuthenticated(t) && c.Bearer(t, a.plain.token(t, claims{"sub": "ann"})).IsAuthenticated(t)
		})
	}
	return []kit.Promise{
		{Statement: "anonymous requests are accepted only for the paths in the file", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Anonymous(t).Get(t, "/livez").OK(t)
			c.Anonymous(t).Get(t, "/readyz").OK(t)
			for _, path := range []string{"/healthz", "/livez/ping", "/version", "/api"} {
				c.Anonymous(t).Get(t, path).Refused(t, http.StatusUnauthorized, "Unauthorized")
			}
		}},
		{Statement: "expressions derive user, groups, uid and more from the claims", Proof: func(t *testing.T, c *kit.Cluster) {
			ready(t, c)
			user := c.Bearer(t, rich(t, nil)).Is(t, "rich:ann", "dev", "ops", authenticated)
			if want := map[string]authenticationv1.ExtraValue{"example.com/team": {"blue"}}; user.UID != "u-1" || !reflect.DeepEqual(user.Extra, want) {
				t.Errorf("the user is %+v", user)
			}
			c.Bearer(t, rich(t, claims{"aud": []string{"third", "other"}})).Is(t, "rich:ann", "dev", "ops", authenticated)
		}},
		{Statement: "there may be several issuers, each with its own mappings", Proof: func(t *testing.T, c *kit.Cluster) {
			ready(t, c)
			c.Bearer(t, a.plain.token(t, claims{"sub": "ann", "roles": "dev"})).Is(t, "plain:ann", authenticated)
			c.Bearer(t, newIssuer(t).token(t, claims{"sub": "ann"})).IsUnauthenticated(t)
		}},
		{Statement: "a token that violates a rule about claims or users is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
			ready(t, c)
			for _, broken := range []claims{
				{"tier": "silver"},
				{"nbf": time.Now().Add(-25 * time.Hour).Unix()},
				{"sub": "system:admin"},
				{"roles": "system:masters"},
				{"aud": "third"},
				{"roles": nil},
			} {
				if c.Bearer(t, rich(t, broken)).IsAuthenticated(t) {
					t.Errorf("a token with %v is accepted", broken)
				}
			}
		}},
		{Statement: "the authentication file is read again when it changes", Proof: func(t *testing.T, c *kit.Cluster) {
			ready(t, c)
			token := c.Bearer(t, a.later.token(t, claims{"sub": "joe"}))
			proveReload(t, c, "authentication", a.authenticationFile, a.authentication(a.rich, a.plain, a.later), func() bool { return token.IsAuthenticated(t) })
			token.Is(t, "plain:joe", authenticated)
		}},
	}
}

func (a *accessConfig) authorizationPromises() []kit.Promise {
	return []kit.Promise{
		{Statement: "a webhook is called for the requests that its conditions match", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, group := range []string{"guarded", "advised"} {
				c.As(t, a.webhook.user("allow"), group).Get(t, c.Path("v1", "secrets")).OK(t)
				c.As(t, a.webhook.user("deny"), group).Get(t, c.Path("v1", "secrets")).Forbidden(t, "not on Sundays")
			}
			free := a.webhook.user("deny")
			c.Grant(t, free, kit.Rule("list", "configmaps"))
			c.As(t, free, "free").Get(t, c.Path("v1", "configmaps")).OK(t)
			events := a.webhook.user("allow")
			c.As(t, events, "guarded").Get(t, c.Path("v1", "events")).Forbidden(t)
			if n := len(a.webhook.asked(free)) + len(a.webhook.asked(events)); n != 0 {
				t.Errorf("the webhook was called %d times for requests that do not match", n)
			}
		}},
		// If no other authorizer decides, kube-apiserver returns an error, not a denial.
		{Statement: "if a webhook fails or is too slow, its failurePolicy decides: Deny or NoOpinion", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, kind := range []string{"broken", "slow"} {
				user := a.webhook.user(kind)
				c.Grant(t, user, kit.Rule("list", "configmaps"))
				c.As(t, user, "guarded").Get(t, c.Path("v1", "configmaps")).Want(t, http.StatusInternalServerError)
				c.As(t, user, "advised").Get(t, c.Path("v1", "configmaps")).OK(t)
				c.As(t, user, "advised").Get(t, c.Path("v1", "secrets")).Want(t, http.StatusInternalServerError)
			}
		}},
		{Statement: "a condition that can't be evaluated counts as a failure of the webhook", Proof: func(t *testing.T, c *kit.Cluster) {
			user := a.webhook.user("allow")
			c.BindEverywhere(t, "ClusterRole/system:monitoring", "Group/"+c.Namespace)
			free := c.As(t, user, c.Namespace)
			harness.Eventually(t, "the group may read metrics", func() bool { return free.Get(t, "/metrics").Code == http.StatusOK })
			failed := c.As(t, user, c.Namespace, "guarded").Get(t, "/metrics").Want(t, http.StatusInternalServerError)
			if !strings.Contains(string(failed.Body), "no such key: resourceAttributes") { // a path has none
				t.Errorf("the response is %s", failed.Body)
			}
		}},
		{Statement: "the authorization file is read again when it changes", Proof: func(t *testing.T, c *kit.Cluster) {
			user := a.webhook.user("deny")
			c.Grant(t, user, kit.Rule("list", "configmaps"))
			client := c.As(t, user, "watched")
			proveReload(t, c, "authorization", a.authorizationFile, a.authorization("guarded", "watched"), func() bool {
				return client.Get(t, c.Path("v1", "configmaps")).Want(t, http.StatusOK, http.StatusForbidden).Code == http.StatusForbidden
			})
		}},
	}
}
