package access

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

	"github.com/sqube/sqube/test/concepts/kit"
)

// accessWebhook decides by the first part of a user's name: allow-x, deny-x, broken-x, slow-x. It has no opinion about others.
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

// asked returns the reviews that the webhook received about a user.
func (w *accessWebhook) asked(user string) []authorizationv1.SubjectAccessReviewSpec {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reviews[user])
}

// user returns a name of the kind that the webhook has not seen yet.
func (w *accessWebhook) user(kind string) string { return kind + "-" + names.String(8) }

// policies is the content of --authorization-policy-file.
const policies = `# who reads ConfigMaps
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"reader","namespace":"*","resource":"configmaps","apiGroup":"*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"prober","nonResourcePath":"/metrics*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"deny-later","namespace":"*","resource":"*","apiGroup":"*"}}
`

// Section "Authorization modes": several of them, consulted in order.
func TestAuthorizationModes(t *testing.T) {
	webhook := newAccessWebhook(t)
	kit.Prove(t, []string{
		"--authorization-mode=ABAC,Webhook,RBAC,AlwaysDeny",
		"--authorization-policy-file=" + kit.WriteFile(t, "policies", policies),
		"--authorization-webhook-config-file=" + kubeconfigOf(t, webhook.Server),
		"--authorization-webhook-version=v1",
		"--authorization-webhook-cache-authorized-ttl=1h",
		"--authorization-webhook-cache-unauthorized-ttl=0s",
		"--anonymous-auth=false",
	},
		kit.Promise{Statement: "with --anonymous-auth=false all requests need credentials, even health checks", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, path := range []string{"/healthz", "/readyz", "/version", "/api", "/missing"} {
				c.Anonymous(t).Get(t, path).Refused(t, http.StatusUnauthorized, "Unauthorized")
			}
		}},
		kit.Promise{Statement: "a policy file grants resources and paths to users and groups, also read-only (ABAC)", Proof: func(t *testing.T, c *kit.Cluster) {
			reader := c.As(t, "reader")
			reader.Get(t, c.Path("v1", "configmaps")).OK(t)
			reader.Get(t, c.Path("v1", "secrets")).Forbidden(t)
			reader.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Forbidden(t)
			c.As(t, "x", "prober").Get(t, "/metrics").OK(t)
			c.As(t, "x", "prober").Get(t, "/version/x").Forbidden(t)
			c.As(t, "x", "other").Get(t, "/metrics").Forbidden(t)
		}},
		kit.Promise{Statement: "a webhook allows, denies with a reason, or leaves the decision to the next authorizer", Proof: func(t *testing.T, c *kit.Cluster) {
			c.As(t, webhook.user("allow")).Get(t, c.Path("v1", "secrets")).OK(t)
			c.As(t, webhook.user("deny")).Get(t, c.Path("v1", "secrets")).Forbidden(t, "not on Sundays")
			c.Grant(t, "ann", kit.Rule("list", "secrets"))
			c.As(t, "ann").Get(t, c.Path("v1", "secrets")).OK(t)
			c.As(t, "joe").Get(t, c.Path("v1", "secrets")).Forbidden(t)
		}},
		kit.Promise{Statement: "the first decision counts: a denial is final, and so is an earlier grant", Proof: func(t *testing.T, c *kit.Cluster) {
			denied := webhook.user("deny")
			c.Bind(t, "ClusterRole/view", "User/"+denied)
			c.Grant(t, "ann", kit.Rule("list", "configmaps")) // by then the binding is in effect too
			c.As(t, denied).Get(t, c.Path("v1", "configmaps")).Forbidden(t, "not on Sundays")
			c.As(t, "deny-later").Get(t, c.Path("v1", "configmaps")).OK(t)
			status := c.ReviewAccess(t, authorizationv1.SubjectAccessReviewSpec{User: denied,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}})
			if status.Allowed || !status.Denied || status.Reason != "not on Sundays" {
				t.Errorf("the review is %+v", status)
			}
		}},
		kit.Promise{Statement: "AlwaysDeny at the end denies what no other authorizer has allowed, except to system:masters", Proof: func(t *testing.T, c *kit.Cluster) {
			c.As(t, "joe").Get(t, c.Path("v1", "configmaps")).Forbidden(t, "Everything is forbidden.")
			c.As(t, "joe", "system:masters").Get(t, c.Path("v1", "configmaps")).OK(t)
		}},
		kit.Promise{Statement: "a webhook receives the user and the request, with its selectors", Proof: func(t *testing.T, c *kit.Cluster) {
			user := webhook.user("allow")
			client := c.As(t, user, "dev")
			client.Send(t, http.MethodGet, c.Path("apps/v1", "deployments")+"?fieldSelector=metadata.name=d&labelSelector=app+in+(a,b)", kit.Header{impersonateUID, "u-1", impersonateExtra + "Scopes", "read"}, nil).OK(t)
			client.Get(t, c.Path("apps/v1", "deployments", "d", "scale"))
			client.Get(t, "/metrics").OK(t)
			asked := webhook.asked(user)
			if len(asked) != 3 {
				t.Fatalf("the webhook received %+v", asked)
			}
			who := authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"dev", authenticated}}
			list := who
			list.UID, list.Extra = "u-1", map[string]authorizationv1.ExtraValue{"scopes": {"read"}}
			list.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Namespace: c.Namespace, Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Name: "d",
				FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "metadata.name", Operator: metav1.FieldSelectorOpIn, Values: []string{"d"}}}},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}},
			}
			kit.Equal(t, asked[0], list)
			scale, path := who, who
			scale.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: "get", Group: "apps",
				Version: "v1", Resource: "deployments", Subresource: "scale", Name: "d"}
			kit.Equal(t, asked[1], scale)
			path.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
			kit.Equal(t, asked[2], path)
		}},
		kit.Promise{Statement: "a webhook's decisions, both positive and negative, are cached for as long as the flags say", Proof: func(t *testing.T, c *kit.Cluster) {
			allowed, other := webhook.user("allow"), webhook.user("other")
			for range 2 {
				c.As(t, allowed).Get(t, c.Path("v1", "secrets")).OK(t)
				c.As(t, other).Get(t, c.Path("v1", "secrets")).Forbidden(t)
			}
			if a, o := len(webhook.asked(allowed)), len(webhook.asked(other)); a != 1 || o != 2 {
				t.Errorf("the webhook was called %d times for an allowed user, %d times for another", a, o)
			}
		}},
		kit.Promise{Statement: "a webhook that fails has no opinion", Proof: func(t *testing.T, c *kit.Cluster) {
			user := webhook.user("broken")
			c.Grant(t, user, kit.Rule("list", "configmaps"))
			c.As(t, user).Get(t, c.Path("v1", "configmaps")).OK(t)
			// If no other authorizer allows it, kube-apiserver returns an error, not a denial.
			c.As(t, user).Get(t, c.Path("v1", "secrets")).Want(t, http.StatusInternalServerError)
		}},
		kit.Promise{Statement: "a user's rules are reported as incomplete if a webhook decides", Proof: func(t *testing.T, c *kit.Cluster) {
			review := c.Post(t, c.ClusterPath(authorizationVersion, "selfsubjectrulesreviews"), authorizationv1.SelfSubjectRulesReview{
				Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: c.Namespace}}).Created(t)
			if review.Value(t, "status", "incomplete") != true || !strings.Contains(review.Text(t, "status",
				"evaluationError"), "webhook authorizer does not support user rule resolution") {
				t.Errorf("the review is %s", review.Body)
			}
		}},
	)
}
