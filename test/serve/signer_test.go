package serve

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	signer "k8s.io/kubernetes/pkg/serviceaccount/externaljwt/plugin/testing/v1"

	"github.com/sqube/sqube/test/harness"
)

// TestExternalSigner uses another process to sign service account tokens, and its keys to verify them.
func TestExternalSigner(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "signer") // t.TempDir's are longer than the path of a socket may be
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "s")
	mock := signer.NewMockSigner(t, socket)
	s := serve(t, []string{"--service-account-signing-endpoint", socket})
	c := client(t, s.Kubeconfig)
	var token string
	harness.Retry(t, "a service account gets a token", func() error {
		request, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = request.Status.Token
		}
		return err
	})
	head, _, _ := strings.Cut(token, ".")
	if text, err := base64.RawURLEncoding.DecodeString(head); err != nil || !strings.Contains(string(text), mock.SigningKeyID) {
		t.Errorf("the token has a different signer: %s, error %v", text, err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err = c.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || review.Status.User.Username != "system:serviceaccount:default:default" {
		t.Errorf("the token belongs to %q, error %v %s", review.Status.User.Username, err, review.Status.Error)
	}
	admin := httpClient(t, s.Kubeconfig, "HTTP/2.0")
	if code, keys := fetch(t, admin, http.MethodGet, s.URL+"/openid/v1/jwks", ""); code != http.StatusOK || !strings.Contains(keys, mock.SigningKeyID) {
		t.Errorf("the key is not published: %d %s", code, keys)
	}
	if review, err := c.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token[:len(token)-4]}}, metav1.CreateOptions{}); err != nil || review.Status.Authenticated {
		t.Errorf("a token with a different signature is accepted, error %v", err)
	}
}
