package access

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sqube/sqube/server/console"
)

func TestIssuers(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "authentication.yaml")
	const content = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://id.example.com
    discoveryURL: https://inside.example.com/.well-known/openid-configuration
    audiences: [cluster, console]
    audienceMatchPolicy: MatchAny
  claimMappings: {username: {claim: sub, prefix: ""}}
- issuer: {url: "https://other.example.com", audiences: [other]}
  claimMappings: {username: {claim: sub, prefix: "other:"}}
`
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		flags []string
		want  []console.Issuer
	}{
		"none":  {nil, nil},
		"flags": {[]string{"--oidc-issuer-url=https://id.example.com", "--oidc-client-id=cluster"}, []console.Issuer{{URL: "https://id.example.com", Audiences: []string{"cluster"}}}},
		"file": {[]string{"--authentication-config=" + config}, []console.Issuer{
			{URL: "https://id.example.com", DiscoveryURL: "https://inside.example.com/.well-known/openid-configuration", Audiences: []string{"cluster", "console"}},
			{URL: "https://other.example.com", Audiences: []string{"other"}},
		}},
	} {
		got, err := parse(t, test.flags...).Issuers(nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if difference := cmp.Diff(test.want, got); difference != "" {
			t.Errorf("%s (-want +got)\n%s", name, difference)
		}
	}
}
