package concepts

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	names "k8s.io/apimachinery/pkg/util/rand"
)

// accessWebhook decides by the first part of a user's name: allow-x, deny-x, broken-x, slow-x. It has no opinion of others.
type accessWebhook struct {
	*httptest.Server
	mu      sync.Mutex
	reviews map[string][]authorizationv1.SubjectAccessReviewSpec // by user
}

func newAccessWebhook(t testing.TB) *accessWebhook {
	t.Helper()
	w := &accessWebhook{reviews: map[string][]authorizationv1.SubjectAccessReviewSpec{}}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(w.review))
	t.Cleanup(w.Close)
	return w
}

func (w *accessWebhook) review(response http.ResponseWriter, request *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.reviews[review.Spec.User] = append(w.reviews[review.Spec.User], review.Spec)
	w.mu.Unlock()
	kind, _, _ := strings.Cut(review.Spec.User, "-")
	switch kind {
	case "allow":
		review.Status.Allowed = true
	case "deny":
		review.Status.Denied, review.Status.Reason = true, "not on Sundays"
	case "broken":
		http.Error(response, "out of order", http.StatusForbidden)
		return
	case "slow":
		<-request.Context().Done()
		return
	}
	writeJSON(response, review)
}

// asked returns what the webhook was asked about a user.
func (w *accessWebhook) asked(user string) []authorizationv1.SubjectAccessReviewSpec {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reviews[user])
}

// user returns a name of the kind that is new to the webhook.
func (w *accessWebhook) user(kind string) string { return kind + "-" + names.String(8) }

// policies is the content of --authorization-policy-file.
const policies = `# who reads ConfigMaps
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"reader","namespace":"*","resource":"configmaps","apiGroup":"*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"prober","nonResourcePath":"/metrics*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"deny-later","namespace":"*","resource":"*","apiGroup":"*"}}
`

// Section "Authorization modes": several of them, asked in order.
func TestAuthorizationModes(t *testing.T) {
	webhook := newAccessWebhook(t)
	prove(t, []string{
		"--authorization-mode=ABAC,Webhook,RBAC,AlwaysDeny",
		"--authorization-policy-file=" + writeFile(t, "policies", policies),
		"--authorization-webhook-config-file=" + kubeconfigOf(t, webhook.Server),
		"--authorization-webhook-version=v1",
		"--authorization-webhook-cache-authorized-ttl=1h",
		"--authorization-webhook-cache-unauthorized-ttl=0s",
		"--anonymous-auth=false",
	},
		promise{"with --anonymous-auth=false everybody must log in, for health too", func(t *testing.T, c *cluster) {
			for _, path := range []string{"/healthz", "/readyz", "/version", "/api", "/missing"} {
				c.anonymous(t).get(t, path).refused(t, http.StatusUnauthorized, "Unauthorized")
			}
		}},
		promise{"a policy file grants resources and paths to users and groups, also read-only (ABAC)", func(t *testing.T, c *cluster) {
			reader := c.as(t, "reader")
			reader.get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
			reader.get(t, c.path("v1", "secrets")).forbidden(t)
			reader.post(t, c.path("v1", "configmaps"), configMap("a", nil)).forbidden(t)
			c.as(t, "x", "prober").get(t, "/metrics").want(t, http.StatusOK)
			c.as(t, "x", "prober").get(t, "/version/x").forbidden(t)
			c.as(t, "x", "other").get(t, "/metrics").forbidden(t)
		}},
		promise{"a webhook allows, denies with a reason, or leaves it to the next", func(t *testing.T, c *cluster) {
			c.as(t, webhook.user("allow")).get(t, c.path("v1", "secrets")).want(t, http.StatusOK)
			c.as(t, webhook.user("deny")).get(t, c.path("v1", "secrets")).forbidden(t, "not on Sundays")
			c.allow(t, "ann", rule("list", "secrets"))
			c.as(t, "ann").get(t, c.path("v1", "secrets")).want(t, http.StatusOK)
			c.as(t, "joe").get(t, c.path("v1", "secrets")).forbidden(t)
		}},
		promise{"the first that decides has decided: a denial is final, and so is a grant before it", func(t *testing.T, c *cluster) {
			denied := webhook.user("deny")
			c.bind(t, "ClusterRole/view", "User/"+denied)
			c.allow(t, "ann", rule("list", "configmaps")) // after which the binding is in force too
			c.as(t, denied).get(t, c.path("v1", "configmaps")).forbidden(t, "not on Sundays")
			c.as(t, "deny-later").get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
			status := c.review(t, authorizationv1.SubjectAccessReviewSpec{User: denied,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}})
			if status.Allowed || !status.Denied || status.Reason != "not on Sundays" {
				t.Errorf("the review is %+v", status)
			}
		}},
		promise{"AlwaysDeny at the end refuses what nobody has allowed, except to system:masters", func(t *testing.T, c *cluster) {
			c.as(t, "joe").get(t, c.path("v1", "configmaps")).forbidden(t, "Everything is forbidden.")
			c.as(t, "joe", "system:masters").get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
		}},
		promise{"a webhook is told the user and the request, with its selectors", func(t *testing.T, c *cluster) {
			user := webhook.user("allow")
			client := c.as(t, user, "dev")
			client.send(t, http.MethodGet, c.path("apps/v1", "deployments")+"?fieldSelector=metadata.name=d&labelSelector=app+in+(a,b)", header{impersonateUID, "u-1", impersonateExtra + "Scopes", "read"}, nil).want(t, http.StatusOK)
			client.get(t, c.path("apps/v1", "deployments", "d", "scale"))
			client.get(t, "/metrics").want(t, http.StatusOK)
			asked := webhook.asked(user)
			if len(asked) != 3 {
				t.Fatalf("the webhook was asked %+v", asked)
			}
			who := authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"dev", authenticated}}
			list := who
			list.UID, list.Extra = "u-1", map[string]authorizationv1.ExtraValue{"scopes": {"read"}}
			list.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Namespace: c.namespace, Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Name: "d",
				FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "metadata.name", Operator: metav1.FieldSelectorOpIn, Values: []string{"d"}}}},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}},
			}
			equal(t, asked[0], list)
			scale, path := who, who
			scale.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: "get", Group: "apps",
				Version: "v1", Resource: "deployments", Subresource: "scale", Name: "d"}
			equal(t, asked[1], scale)
			path.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
			equal(t, asked[2], path)
		}},
		promise{"what a webhook has allowed is remembered as long as the flags say, and what it has not, too", func(t *testing.T, c *cluster) {
			allowed, other := webhook.user("allow"), webhook.user("other")
			for range 2 {
				c.as(t, allowed).get(t, c.path("v1", "secrets")).want(t, http.StatusOK)
				c.as(t, other).get(t, c.path("v1", "secrets")).forbidden(t)
			}
			if a, o := len(webhook.asked(allowed)), len(webhook.asked(other)); a != 1 || o != 2 {
				t.Errorf("the webhook was asked %d times about what it allowed, %d times about what it did not", a, o)
			}
		}},
		promise{"a webhook that fails has no opinion", func(t *testing.T, c *cluster) {
			user := webhook.user("broken")
			c.allow(t, user, rule("list", "configmaps"))
			c.as(t, user).get(t, c.path("v1", "configmaps")).want(t, http.StatusOK)
			// Where nobody else allows it, kube-apiserver says that it has failed, not that the user must not.
			c.as(t, user).get(t, c.path("v1", "secrets")).want(t, http.StatusInternalServerError)
		}},
		promise{"the rules that somebody sees are said to be incomplete where a webhook decides", func(t *testing.T, c *cluster) {
			review := c.post(t, c.global(authorizationVersion, "selfsubjectrulesreviews"), authorizationv1.SelfSubjectRulesReview{
				Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: c.namespace}}).want(t, http.StatusCreated)
			if review.value(t, "status", "incomplete") != true || !strings.Contains(review.text(t, "status",
				"evaluationError"), "webhook authorizer does not support user rule resolution") {
				t.Errorf("the review is %s", review.Body)
			}
		}},
	)
}
