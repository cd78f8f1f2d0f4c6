package replicas

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// tokenRequest requests a token of the ServiceAccount default from a server.
func tokenRequest(t *testing.T, r replica) string {
	t.Helper()
	request, err := r.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	harness.Must(t, err)
	return request.Status.Token
}

// whoami returns the user of a token, according to a server.
func whoami(t *testing.T, r replica, token string) string {
	t.Helper()
	config := rest.AnonymousClientConfig(r.Config(t))
	config.BearerToken = token
	return self(t, config)
}
