package concepts

import (
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	names "k8s.io/apimachinery/pkg/util/rand"
)

// tokenSecret makes a Secret for a token of the account, and waits until the server has filled it.
func (c *cluster) tokenSecret(t *testing.T, name, account string) *corev1.Secret {
	t.Helper()
	secrets := c.kube.CoreV1().Secrets(c.namespace)
	secret, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Secret has a token", func() bool {
		if secret, err = secrets.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		return len(secret.Data[corev1.ServiceAccountTokenKey]) > 0
	})
	return secret
}

// Beside kube-apiserver it is kube-controller-manager that fills and deletes token Secrets.
var legacyTokens = []promise{
	{"a Secret of type kubernetes.io/service-account-token is filled with a token, its namespace and the server's authority", func(t *testing.T, c *cluster) {
		account := c.account(t, "robot")
		secret := c.tokenSecret(t, "s", "robot")
		if user := c.isAccount(t, string(secret.Data["token"]), "robot"); user.UID != string(account.UID) {
			t.Errorf("the uid is %q", user.UID)
		}
		if string(secret.Data["namespace"]) != c.namespace || len(secret.Data["ca.crt"]) == 0 ||
			secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) {
			t.Errorf("the Secret is %v with %v", secret.Data, secret.Annotations)
		}
		// The day may change meanwhile.
		before := time.Now().UTC()
		label := c.get(t, c.path("v1", "secrets", "s")).value(t, "metadata", "labels", "kubernetes.io/legacy-token-last-used")
		if label != before.Format(time.DateOnly) && label != before.AddDate(0, 0, -1).Format(time.DateOnly) {
			t.Errorf("the Secret was last used on %v", label)
		}
	}},
	{"the token in a Secret is refused when the Secret is deleted or marked invalid", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		deleted, marked := c.tokenSecret(t, "deleted", "robot"), c.tokenSecret(t, "marked", "robot")
		c.delete(t, c.path("v1", "secrets", "deleted")).want(t, http.StatusOK)
		c.patch(t, mergePatch, c.path("v1", "secrets", "marked"), `{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2024-01-01"}}}`).want(t, http.StatusOK)
		for _, secret := range []*corev1.Secret{deleted, marked} {
			token := c.bearer(t, string(secret.Data["token"]))
			eventually(t, "the token is refused", func() bool { return !token.known(t) })
		}
	}},
	{"token Secrets go with their account, and a Secret for a missing account goes at once", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		c.tokenSecret(t, "s", "robot")
		c.post(t, c.path("v1", "secrets"), map[string]any{
			"metadata": map[string]any{"name": "lost", "annotations": map[string]any{corev1.ServiceAccountNameKey: "missing"}},
			"type":     corev1.SecretTypeServiceAccountToken,
		}).want(t, http.StatusCreated)
		c.delete(t, c.path("v1", "serviceaccounts", "robot")).want(t, http.StatusOK)
		for _, name := range []string{"s", "lost"} {
			eventually(t, "Secret "+name+" is gone", func() bool {
				_, err := c.kube.CoreV1().Secrets(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
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

// tokenReviews are the promises on TokenReviews, by which others have the server check tokens.
func (a *authenticators) tokenReviews() []promise {
	return []promise{
		{"a TokenReview tells whose a token is, of whatever kind", func(t *testing.T, c *cluster) {
			c.account(t, "robot")
			bootstrap, _ := bootstrapToken(t, c, nil)
			for name, token := range map[string]string{
				"jane":                              "static-jane",
				"system:bootstrap:" + bootstrap[:6]: bootstrap,
				"system:serviceaccount:" + c.namespace + ":robot": c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{}),
				"oidc:ann": a.issuer.token(t, claims{"sub": "ann", "tier": "gold"}),
				"ann":      "hook-ann-" + names.String(8),
			} {
				eventually(t, "the token of "+name+" is known", func() bool {
					review := c.post(t, tokenReviews, tokenReview(token)).want(t, http.StatusCreated)
					return review.value(t, "status", "authenticated") == true && review.text(t, "status", "user", "username") == name
				})
			}
			review := c.post(t, tokenReviews, tokenReview("wrong")).want(t, http.StatusCreated)
			if authenticated := review.value(t, "status", "authenticated"); authenticated != nil && authenticated != false ||
				review.text(t, "status", "error") == "" {
				t.Errorf("of a wrong token: %s", review.Body)
			}
			c.post(t, tokenReviews, tokenReview("")).refused(t, http.StatusBadRequest, "BadRequest", "token is required for TokenReview in authentication")
		}},
		{"a TokenReview tells for which of the audiences asked about a token is meant", func(t *testing.T, c *cluster) {
			c.account(t, "robot")
			token := c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}})
			c.bearer(t, token).isNobody(t)
			review := c.post(t, tokenReviews, tokenReview(token, "vault", "other")).want(t, http.StatusCreated)
			if audiences, _ := review.value(t, "status", "audiences").([]any); len(audiences) != 1 ||
				audiences[0] != "vault" || review.value(t, "status", "authenticated") != true {
				t.Errorf("asked about vault and other: %s", review.Body)
			}
			if review := c.post(t, tokenReviews, tokenReview(token)).want(t, http.StatusCreated); review.value(t, "status", "authenticated") == true {
				t.Errorf("asked about the server: %s", review.Body)
			}
		}},
		{"a TokenReview may be asked by those in the role system:auth-delegator", func(t *testing.T, c *cluster) {
			ann := c.as(t, "delegate-"+c.namespace)
			ann.post(t, tokenReviews, tokenReview("static-jane")).refused(t, http.StatusForbidden, "Forbidden",
				`cannot create resource "tokenreviews" in API group "authentication.k8s.io" at the cluster scope`)
			c.bindCluster(t, "ClusterRole/system:auth-delegator", "User/delegate-"+c.namespace)
			eventually(t, "the delegate may ask", func() bool {
				return ann.post(t, tokenReviews, tokenReview("static-jane")).want(t, http.StatusCreated, http.StatusForbidden).Code == http.StatusCreated
			})
		}},
	}
}
