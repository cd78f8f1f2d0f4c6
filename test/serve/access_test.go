package serve

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestWhoMayDoWhat sends anonymous requests, and requests of users with tokens.
func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	text := "admin-token,jane,1,\"system:masters,developers\"\nplain-token,john,2\n"
	harness.Must(t, os.WriteFile(tokens, []byte(text), 0o600))
	s := serve(t, []string{"--token-auth-file", tokens})
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
			asks := func() error {
				if got := status(t, s.URL+path, token); got != code {
					return fmt.Errorf("%s with token %q returns %d, want %d", path, token, got, code)
				}
				return nil
			}
			if code == http.StatusOK { // once the authorizer has heard of the default roles
				harness.Retry(t, "it is allowed", asks)
			} else if err := asks(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNoAnonymous checks that requests without credentials are rejected.
func TestNoAnonymous(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--anonymous-auth=false"})
	for _, path := range []string{"/livez", "/version", "/api/v1/namespaces"} {
		if got := status(t, s.URL+path, ""); got != http.StatusUnauthorized {
			t.Errorf("%s returns %d", path, got)
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
