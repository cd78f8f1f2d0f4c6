package access

import (
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	names "k8s.io/apimachinery/pkg/util/rand"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// tokenSecret creates a Secret for a token of the account, and waits until the server has filled it.
func tokenSecret(t *testing.T, c *kit.Cluster, name, account string) *corev1.Secret {
	t.Helper()
	secrets := c.Kube.CoreV1().Secrets(c.Namespace)
	secret := kit.Must(secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{}))(t)
	harness.Eventually(t, "the Secret has a token", func() bool {
		secret = kit.Must(secrets.Get(t.Context(), name, metav1.GetOptions{}))(t)
		return len(secret.Data[corev1.ServiceAccountTokenKey]) > 0
	})
	return secret
}

// With kube-apiserver, kube-controller-manager fills and deletes token Secrets.
var legacyTokens = []kit.Promise{
	{Statement: "a Secret of type kubernetes.io/service-account-token is filled with a token, its namespace and the server's authority", Proof: func(t *testing.T, c *kit.Cluster) {
		account := c.MakeServiceAccount(t, "robot")
		secret := tokenSecret(t, c, "s", "robot")
		// The authenticator hears of the Secret's token a moment after it is there.
		token := c.Bearer(t, string(secret.Data["token"]))
		harness.Eventually(t, "the token is accepted", func() bool { return token.IsAuthenticated(t) })
		if user := isAccount(t, c, string(secret.Data["token"]), "robot"); user.UID != string(account.UID) {
			t.Errorf("the uid is %q", user.UID)
		}
		if string(secret.Data["namespace"]) != c.Namespace || len(secret.Data["ca.crt"]) == 0 ||
			secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) {
			t.Errorf("the Secret is %v with %v", secret.Data, secret.Annotations)
		}
		// The day may change meanwhile.
		before := time.Now().UTC()
		label := c.Get(t, c.Path("v1", "secrets", "s")).Value(t, "metadata", "labels", "kubernetes.io/legacy-token-last-used")
		if label != before.Format(time.DateOnly) && label != before.AddDate(0, 0, -1).Format(time.DateOnly) {
			t.Errorf("the Secret was last used on %v", label)
		}
	}},
	{Statement: "the token in a Secret is rejected when the Secret is deleted or marked invalid", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		deleted, marked := tokenSecret(t, c, "deleted", "robot"), tokenSecret(t, c, "marked", "robot")
		c.Delete(t, c.Path("v1", "secrets", "deleted")).OK(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "secrets", "marked"), `{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2024-01-01"}}}`).OK(t)
		for _, secret := range []*corev1.Secret{deleted, marked} {
			token := c.Bearer(t, string(secret.Data["token"]))
			harness.Eventually(t, "the token is rejected", func() bool { return !token.IsAuthenticated(t) })
		}
	}},
	{Statement: "token Secrets are deleted with their account, and a Secret for a missing account at once", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		tokenSecret(t, c, "s", "robot")
		c.Post(t, c.Path("v1", "secrets"), map[string]any{
			"metadata": map[string]any{"name": "lost", "annotations": map[string]any{corev1.ServiceAccountNameKey: "missing"}},
			"type":     corev1.SecretTypeServiceAccountToken,
		}).Created(t)
		c.Delete(t, c.Path("v1", "serviceaccounts", "robot")).OK(t)
		for _, name := range []string{"s", "lost"} {
			harness.Eventually(t, "Secret "+name+" is gone", func() bool {
				_, err := c.Kube.CoreV1().Secrets(c.Namespace).Get(t.Context(), name, metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			})
		}
	}},
}

const tokenReviews = "/apis/authentication.k8s.io/v1/tokenreviews"

func tokenReview(token string, audiences ...string) authenticationv1.TokenReview {
	return authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}
}

// tokenReviews are the promises about TokenReviews, with which other programs let the server check tokens.
func (a *authenticators) tokenReviews() []kit.Promise {
	return []kit.Promise{
		{Statement: "a TokenReview returns the user of a token of any kind", Proof: func(t *testing.T, c *kit.Cluster) {
			c.MakeServiceAccount(t, "robot")
			bootstrap, _ := bootstrapToken(t, c, nil)
			for name, token := range map[string]string{
				"jane":                              "static-jane",
				"system:bootstrap:" + bootstrap[:6]: bootstrap,
				"system:serviceaccount:" + c.Namespace + ":robot": issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{}),
				"oidc:ann": a.issuer.token(t, claims{"sub": "ann", "tier": "gold"}),
				"ann":      "hook-ann-" + names.String(8),
			} {
				harness.Eventually(t, "the token of "+name+" is accepted", func() bool {
					review := c.Post(t, tokenReviews, tokenReview(token)).Created(t)
					return review.Value(t, "status", "authenticated") == true && review.Text(t, "status", "user", "username") == name
				})
			}
			review := c.Post(t, tokenReviews, tokenReview("wrong")).Created(t)
			if authenticated := review.Value(t, "status", "authenticated"); authenticated != nil && authenticated != false ||
				review.Text(t, "status", "error") == "" {
				t.Errorf("for an invalid token: %s", review.Body)
			}
			c.Post(t, tokenReviews, tokenReview("")).BadRequest(t, "token is required for TokenReview in authentication")
		}},
		{Statement: "a TokenReview returns which of the requested audiences a token is for", Proof: func(t *testing.T, c *kit.Cluster) {
			c.MakeServiceAccount(t, "robot")
			token := issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}})
			c.Bearer(t, token).IsUnauthenticated(t)
			review := c.Post(t, tokenReviews, tokenReview(token, "vault", "other")).Created(t)
			if audiences, _ := review.Value(t, "status", "audiences").([]any); len(audiences) != 1 ||
				audiences[0] != "vault" || review.Value(t, "status", "authenticated") != true {
				t.Errorf("with audiences vault and other: %s", review.Body)
			}
			if review := c.Post(t, tokenReviews, tokenReview(token)).Created(t); review.Value(t, "status", "authenticated") == true {
				t.Errorf("with the server's audience: %s", review.Body)
			}
		}},
		{Statement: "users with the role system:auth-delegator may create TokenReviews", Proof: func(t *testing.T, c *kit.Cluster) {
			ann := c.As(t, "delegate-"+c.Namespace)
			ann.Post(t, tokenReviews, tokenReview("static-jane")).Forbidden(t,
				`cannot create resource "tokenreviews" in API group "authentication.k8s.io" at the cluster scope`)
			c.BindEverywhere(t, "ClusterRole/system:auth-delegator", "User/delegate-"+c.Namespace)
			harness.Eventually(t, "the delegate may create TokenReviews", func() bool {
				return ann.Post(t, tokenReviews, tokenReview("static-jane")).Want(t, http.StatusCreated, http.StatusForbidden).Code == http.StatusCreated
			})
		}},
	}
}
