package serve

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// tokens is a --token-auth-file.
const tokens = `admin-token,jane,1,"system:masters,developers"
plain-token,john,2
`

// whoMayDoWhat sends anonymous requests, and requests of users with tokens.
func whoMayDoWhat(t *testing.T, s *sqube.Server) {
	for path, want := range map[string]map[string]int{ // by token, "" for none
		"/healthz":                          {"": 200},
		"/livez":                            {"": 200},
		"/readyz":                           {"": 200},
		"/version":                          {"": 200},
		"/":                                 {"": 403, "plain-token": 403, "admin-token": 200},
		"/api":                              {"": 403, "plain-token": 200},
		"/openapi/v2":                       {"": 403, "plain-token": 200},
		"/metrics":                          {"": 403, "plain-token": 403, "admin-token": 200},
		"/api/v1/namespaces":                {"": 403, "plain-token": 403, "admin-token": 200, "no-such-token": 401},
		"/apis/apps/v1/deployments":         {"": 403, "plain-token": 403, "admin-token": 200},
		"/api/v1/namespaces/default/pods":   {"": 403, "plain-token": 403, "admin-token": 200},
		"/nothing":                          {"": 403, "plain-token": 403, "admin-token": 404},
		"/readyz?verbose":                   {"": 200, "no-such-token": 401},
		"/.well-known/openid-configuration": {"": 403, "admin-token": 200},
	} {
		for token, code := range want {
			if code == http.StatusOK { // once the authorizer has heard of the default roles
				harness.Eventually(t, fmt.Sprintf("token %q is allowed %s", token, path), func() bool { return status(t, s.URL+path, token) == code })
			} else if got := status(t, s.URL+path, token); got != code {
				t.Errorf("%s with token %q returns %d, want %d", path, token, got, code)
			}
		}
	}
}

// status returns the status code of a GET, with a bearer token if there is one.
func status(t *testing.T, url, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	harness.Must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := insecure.Do(request)
	harness.Must(t, err)
	response.Body.Close()
	return response.StatusCode
}
