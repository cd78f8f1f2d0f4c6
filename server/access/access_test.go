package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/sqube/sqube/server/console"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/test/harness"
)

var account = corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot", UID: "u-1"}}

// fixture is a server's access control over given objects.
type fixture struct {
	options *Options
	cluster Cluster
}

func setUp(t testing.TB, args []string, objects ...runtime.Object) *fixture {
	t.Helper()
	dir := t.TempDir()
	p, err := pki.Ensure(t.Context(), dir, pki.Options{})
	harness.Must(t, err)
	o := parse(t, args...)
	harness.Must(t, o.Complete(files(p)))
	harness.Must(t, o.Validate())
	client := fake.NewClientset(objects...)
	return &fixture{o, Cluster{Client: client, Informers: informers.NewSharedInformerFactory(client, 0), ServerID: "test"}}
}

func parse(t testing.TB, args ...string) *Options {
	t.Helper()
	o := NewOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(fs)
	harness.Must(t, fs.Parse(args))
	return o
}

func files(p *pki.PKI) Files {
	return Files{ClientCA: p.CA.CertFile, FrontProxyCA: p.FrontProxyCA.CertFile, ServiceAccountKey: p.ServiceAccountKey}
}

func (f *fixture) authentication(t testing.TB) *Authentication {
	t.Helper()
	accounts, err := NewServiceAccounts(t.Context(), t.Context(), f.options)
	harness.Must(t, err)
	a, err := NewAuthentication(t.Context(), f.options, accounts, f.cluster)
	harness.Must(t, err)
	f.cluster.Informers.Start(t.Context().Done())
	for kind, synced := range f.cluster.Informers.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("the informer of %s did not sync", kind)
		}
	}
	return a
}

// userOf returns the name of the user that a finds in r, or "" if it rejects r.
func userOf(a *Authentication, r *http.Request) string {
	resp, ok, err := a.Authenticator.AuthenticateRequest(r)
	if err != nil || !ok {
		return ""
	}
	return resp.User.GetName()
}

func request(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func TestLoopbackComesFirst(t *testing.T) {
	a := setUp(t, nil).authentication(t)
	transport := loopback.New(t.Context())
	var name string
	transport.SetHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { name = userOf(a, r) }))
	r, err := http.NewRequest(http.MethodGet, "http://x/", nil)
	harness.Must(t, err)
	r.Header.Set("Authorization", "Bearer wrong")
	if _, err := transport.RoundTrip(r); err != nil || name != user.APIServerUser {
		t.Errorf("got %q, %v", name, err)
	}
}

// TestSigningKeys signs tokens with private keys of every type and format.
func TestSigningKeys(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	harness.Must(t, err)
	keys := map[string]any{"RSA": rsaKey}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		if keys[curve.Params().Name], err = ecdsa.GenerateKey(curve, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	for name, key := range keys {
		traditional, err := keyutil.MarshalPrivateKeyToPEM(key)
		harness.Must(t, err)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		harness.Must(t, err)
		for form, text := range map[string][]byte{"traditional": traditional, "PKCS #8": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
			path := filepath.Join(t.TempDir(), "sa.key")
			harness.Must(t, os.WriteFile(path, text, 0o600))
			f := setUp(t, []string{"--service-account-signing-key-file=" + path}, &account)
			accounts, err := NewServiceAccounts(t.Context(), t.Context(), f.options)
			if err != nil {
				t.Errorf("%s, %s: %v", name, form, err)
				continue
			}
			claims, private, err := serviceaccount.Claims(core.ServiceAccount{ObjectMeta: account.ObjectMeta}, nil, nil, nil, nil, nil, 600, 0, []string{DefaultIssuer}, nil)
			harness.Must(t, err)
			token, err := accounts.Generator.GenerateToken(t.Context(), claims, private)
			harness.Must(t, err)
			if bearer := userOf(f.authentication(t), request(token)); bearer != "system:serviceaccount:ns:robot" {
				t.Errorf("%s, %s: the token authenticates as %q", name, form, bearer)
			}
		}
	}
}

func TestAlwaysAllowTurnsAnonymousOff(t *testing.T) {
	f := setUp(t, []string{"--authorization-mode=AlwaysAllow"})
	if name := userOf(f.authentication(t), request("")); name != "" {
		t.Errorf("got %q", name)
	}
}

// TestClusterKeys counts the keys that make a server one of its cluster: its own ones, and those in the files of flags.
func TestClusterKeys(t *testing.T) {
	other, err := pki.Ensure(t.Context(), t.TempDir(), pki.Options{})
	harness.Must(t, err)
	for _, test := range []struct {
		args         []string
		ca, accounts int
	}{
		{nil, 1, 1},
		{[]string{"--client-ca-file", other.CA.CertFile}, 2, 1},
		{[]string{"--service-account-key-file", other.ServiceAccountKey}, 1, 2},
		{[]string{"--service-account-signing-key-file", other.ServiceAccountKey, "--service-account-key-file", other.ServiceAccountKey}, 1, 1},
		{[]string{"--service-account-signing-endpoint", "/run/signer"}, 1, 0},
	} {
		o, dir := parse(t, test.args...), t.TempDir()
		keys, found := o.ClusterKeys(filepath.Join(dir, "pki")), sharedkeys.Keys{}
		_, err := pki.Ensure(t.Context(), dir, pki.Options{Guard: guardFunc(func(files pki.Shared) (err error) {
			found, err = keys(files)
			return err
		})})
		harness.Must(t, err)
		distinct := map[string]bool{}
		for _, key := range found.ServiceAccount {
			distinct[key.Fingerprint] = true
		}
		if len(found.CA) != test.ca || len(distinct) != test.accounts || found.CA[0].File != filepath.Join(dir, "pki", "ca.crt") {
			t.Errorf("with %v: %+v", test.args, found)
		}
	}
}

type guardFunc func(pki.Shared) error

func (g guardFunc) Check(_ context.Context, files pki.Shared) error { return g(files) }

func (g guardFunc) Record(_ context.Context, files pki.Shared) error { return g(files) }

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
	harness.Must(t, os.WriteFile(config, []byte(content), 0o600))
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
