package access

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// The issuers of service account tokens, --service-account-issuer. The first is named in new tokens.
const (
	firstIssuer  = "https://first.example.com"
	secondIssuer = "https://second.example.com"
)

// Extra keys of a token's user.
const (
	credentialID = "authentication.kubernetes.io/credential-id"
	podName      = "authentication.kubernetes.io/pod-name"
	podUID       = "authentication.kubernetes.io/pod-uid"
	nodeName     = "authentication.kubernetes.io/node-name"
	nodeUID      = "authentication.kubernetes.io/node-uid"
)

// newKey returns an RSA key, and a file with it in PEM.
func newKey(t testing.TB) (*rsa.PrivateKey, string) {
	t.Helper()
	key := kit.Must(rsa.GenerateKey(rand.Reader, 2048))(t)
	text := kit.Must(keyutil.MarshalPrivateKeyToPEM(key))(t)
	return key, kit.WriteFile(t, "sa.key", string(text))
}

// requestToken requests a token for an account.
func requestToken(t testing.TB, c *kit.Cluster, account string, spec authenticationv1.TokenRequestSpec) kit.Answer {
	t.Helper()
	return c.Post(t, c.Path("v1", "serviceaccounts", account, "token"), authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}, Spec: spec,
	})
}

// issueToken returns a token for an account.
func issueToken(t testing.TB, c *kit.Cluster, account string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	return requestToken(t, c, account, spec).Created(t).Text(t, "status", "token")
}

// accountGroups are the groups of the accounts in the promise's namespace.
func accountGroups(c *kit.Cluster) []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + c.Namespace, authenticated}
}

// isAccount fails the test unless the token is the account's.
func isAccount(t testing.TB, c *kit.Cluster, token, account string) authenticationv1.UserInfo {
	t.Helper()
	return c.Bearer(t, token).Is(t, "system:serviceaccount:"+c.Namespace+":"+account, accountGroups(c)...)
}

// claimsOf returns the claims of a token.
func claimsOf(t testing.TB, token string) claims {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("not a JSON Web Token: %s", token)
	}
	payload := kit.Must(base64.RawURLEncoding.DecodeString(parts[1]))(t)
	var content claims
	harness.Must(t, json.Unmarshal(payload, &content))
	return content
}

// podOn creates a Pod that runs with the account, on the node if not empty.
func podOn(t testing.TB, c *kit.Cluster, name, account, node string) *corev1.Pod {
	t.Helper()
	pod := kit.Must(c.Kube.CoreV1().Pods(c.Namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{}))(t)
	return pod
}

// node creates a Node with a name unique to the promise.
func node(t testing.TB, c *kit.Cluster, name string) *corev1.Node {
	t.Helper()
	node := kit.Must(c.Kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	return node
}

// boundTo requests a token that is valid no longer than an object exists.
func boundTo(kind, name string) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name}}
}

var tokenRequests = []kit.Promise{
	{Statement: "a token is requested for an account, with an expiry and audiences", Proof: func(t *testing.T, c *kit.Cluster) {
		account := c.MakeServiceAccount(t, "robot")
		seconds := int64(1200)
		answer := requestToken(t, c, "robot", authenticationv1.TokenRequestSpec{Audiences: []string{firstIssuer, "vault"},
			ExpirationSeconds: &seconds}).Created(t)
		ends := kit.Must(time.Parse(time.RFC3339, answer.Text(t, "status", "expirationTimestamp")))(t)
		content := claimsOf(t, answer.Text(t, "status", "token"))
		if content["exp"].(float64)-content["iat"].(float64) != 1200 || content["exp"] != float64(ends.Unix()) {
			t.Errorf("the token for 1200 seconds is valid from %v to %v, and until %v according to its status", content["iat"], content["exp"], ends.Unix())
		}
		about := content["kubernetes.io"].(map[string]any)
		switch {
		case content["iss"] != firstIssuer, content["sub"] != "system:serviceaccount:"+c.Namespace+":robot", about["namespace"] != c.Namespace,
			about["serviceaccount"].(map[string]any)["uid"] != string(account.UID):
			t.Errorf("the claims are %v", content)
		}
		user := isAccount(t, c, answer.Text(t, "status", "token"), "robot")
		if id := "JTI=" + content["jti"].(string); user.UID != string(account.UID) || !slices.Equal(user.Extra[credentialID], []string{id}) {
			t.Errorf("the bearer is %+v", user)
		}
	}},
	{Statement: "a token requested without audiences is for the server, and valid for an hour", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		content := claimsOf(t, issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{}))
		if content["exp"].(float64)-content["iat"].(float64) != 3600 {
			t.Errorf("it is valid from %v to %v", content["iat"], content["exp"])
		}
		if audiences, _ := content["aud"].([]any); !slices.Equal(audiences, []any{firstIssuer, secondIssuer}) {
			t.Errorf("it is for %v", content["aud"])
		}
	}},
	{Statement: "no token is issued for less than ten minutes, for a missing account, or for another uid, and none can be read", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		seconds := int64(599)
		requestToken(t, c, "robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}).
			Invalid(t, "spec.expirationSeconds", "may not specify a duration less than 10 minutes")
		requestToken(t, c, "nobody", authenticationv1.TokenRequestSpec{}).NotFound(t, `serviceaccounts "nobody" not found`)
		c.Post(t, c.Path("v1", "serviceaccounts", "robot", "token"), map[string]any{"metadata": map[string]any{"uid": "other"}}).
			Conflict(t, "the UID in the token request (other) does not match the UID of the service account")
		c.Get(t, c.Path("v1", "serviceaccounts", "robot", "token")).Want(t, http.StatusMethodNotAllowed)
	}},
	{Statement: "only users who may create serviceaccounts/token get tokens", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		ann := c.As(t, "ann")
		request := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
		ann.Post(t, c.Path("v1", "serviceaccounts", "robot", "token"), request).Forbidden(t,
			`serviceaccounts "robot" is forbidden: User "ann" cannot create resource "serviceaccounts/token" in API group "" in the namespace "`+c.Namespace+`"`)
		c.Grant(t, "ann", kit.Rule("create", "serviceaccounts/token", "robot"))
		ann.Post(t, c.Path("v1", "serviceaccounts", "robot", "token"), request).Created(t)
		ann.Post(t, c.Path("v1", "serviceaccounts", "default", "token"), request).Forbidden(t)
	}},
	{Statement: "a token bound to a Pod names its Pod and Node, and becomes invalid with the Pod", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		node := node(t, c, c.Namespace)
		pod := podOn(t, c, "p", "robot", node.Name)
		token, second := issueToken(t, c, "robot", boundTo("Pod", "p")), issueToken(t, c, "robot", boundTo("Pod", "p"))
		user := isAccount(t, c, token, "robot")
		for key, want := range map[string]string{podName: "p", podUID: string(pod.UID), nodeName: node.Name, nodeUID: string(node.UID)} {
			if got := user.Extra[key]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s is %q", key, got)
			}
		}
		c.Delete(t, c.Path("v1", "pods", "p")+"?gracePeriodSeconds=0").OK(t)
		harness.Eventually(t, "a token that was not used before is rejected", func() bool { return !c.Bearer(t, second).IsAuthenticated(t) })
		harness.Eventually(t, "a token that was used before is rejected", func() bool { return !c.Bearer(t, token).IsAuthenticated(t) })
		podOn(t, c, "p", "robot", "") // a new Pod of that name
		c.Bearer(t, second).IsUnauthenticated(t)
	}},
	{Statement: "a token bound to a Secret or a Node becomes invalid with it", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		node := node(t, c, c.Namespace)
		c.Post(t, c.Path("v1", "secrets"), map[string]any{"metadata": map[string]any{"name": "s"}}).Created(t)
		ofSecret, ofNode := issueToken(t, c, "robot", boundTo("Secret", "s")), issueToken(t, c, "robot", boundTo("Node", c.Namespace))
		later := []string{ofSecret, ofNode, issueToken(t, c, "robot", boundTo("Secret", "s")), issueToken(t, c, "robot", boundTo("Node", c.Namespace))}
		isAccount(t, c, ofSecret, "robot")
		if user := isAccount(t, c, ofNode, "robot"); !slices.Equal(user.Extra[nodeUID], []string{string(node.UID)}) {
			t.Errorf("the bearer is %+v", user)
		}
		c.Delete(t, c.Path("v1", "secrets", "s")).OK(t)
		c.Delete(t, c.ClusterPath("v1", "nodes", c.Namespace)).OK(t)
		for _, token := range later {
			harness.Eventually(t, "the token is rejected", func() bool { return !c.Bearer(t, token).IsAuthenticated(t) })
		}
	}},
	{Statement: "a token is bound only to an existing object, by its uid, that belongs to the account", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		c.MakeServiceAccount(t, "other")
		podOn(t, c, "p", "robot", "")
		requestToken(t, c, "robot", boundTo("Pod", "missing")).NotFound(t, `pods "missing" not found`)
		requestToken(t, c, "other", boundTo("Pod", "p")).BadRequest(t,
			`cannot bind token for serviceaccount "other" to pod running with different serviceaccount name.`)
		requestToken(t, c, "robot", boundTo("ConfigMap", "kube-root-ca.crt")).BadRequest(t,
			"cannot bind token to object of type")
		wrong := boundTo("Pod", "p")
		wrong.BoundObjectRef.UID = "other"
		requestToken(t, c, "robot", wrong).Conflict(t, "does not match the UID in record")
	}},
	{Statement: "the token of a deleted account is rejected, even if there is a new account of that name", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		token := issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{})
		c.Delete(t, c.Path("v1", "serviceaccounts", "robot")).OK(t)
		harness.Eventually(t, "the token is rejected", func() bool { return !c.Bearer(t, token).IsAuthenticated(t) })
		c.MakeServiceAccount(t, "robot")
		isAccount(t, c, issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{}), "robot")
		c.Bearer(t, token).IsUnauthenticated(t)
	}},
	{Statement: "a token with the expiry of Pods' tokens is valid for a year, and contains when to renew it", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		podOn(t, c, "p", "robot", "")
		seconds := int64(3607)
		spec := boundTo("Pod", "p")
		spec.ExpirationSeconds = &seconds
		content := claimsOf(t, issueToken(t, c, "robot", spec))
		renew := content["kubernetes.io"].(map[string]any)["warnafter"].(float64)
		if issued := content["iat"].(float64); renew-issued != 3607 || content["exp"].(float64)-issued != 365*24*3600 {
			t.Errorf("the token is valid from %v to %v, and to be renewed at %v", issued, content["exp"], renew)
		}
	}},
}

// accountTokens are the promises about account tokens that the test itself signs with the server's keys.
func (a *authenticators) accountTokens() []kit.Promise {
	token := func(t *testing.T, c *kit.Cluster, key *rsa.PrivateKey, further claims) string {
		account := accountOnce(t, c)
		all := claims{
			"iss": firstIssuer, "aud": []string{firstIssuer}, "sub": "system:serviceaccount:" + c.Namespace + ":robot",
			"iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
			"kubernetes.io": map[string]any{"namespace": c.Namespace, "serviceaccount": map[string]any{"name": "robot", "uid": account.UID}},
		}
		maps.Copy(all, further)
		return signToken(t, key, all)
	}
	return []kit.Promise{
		{Statement: "tokens of every --service-account-issuer, signed with any --service-account-key-file, are accepted", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, key := range []*rsa.PrivateKey{a.accounts, a.retired} {
				for _, issuer := range []string{firstIssuer, secondIssuer} {
					isAccount(t, c, token(t, c, key, claims{"iss": issuer}), "robot")
				}
			}
		}},
		{Statement: "a token of another issuer or key, expired, not yet valid, or for another audience is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
			stranger, _ := newKey(t)
			for what, refused := range map[string]string{
				"another issuer":   token(t, c, a.accounts, claims{"iss": "https://other.example.com"}),
				"another key":      token(t, c, stranger, nil),
				"another audience": token(t, c, a.accounts, claims{"aud": []string{"vault"}}),
				"expired":          token(t, c, a.accounts, claims{"exp": time.Now().Add(-2 * time.Minute).Unix()}),
				"not yet valid":    token(t, c, a.accounts, claims{"nbf": time.Now().Add(time.Hour).Unix()}),
				"not signed":       strings.Join(append(strings.Split(token(t, c, a.accounts, nil), ".")[:2], ""), "."),
			} {
				if c.Bearer(t, refused).IsAuthenticated(t) {
					t.Errorf("%s: the token is accepted", what)
				}
			}
		}},
		{Statement: "the issuer's name and keys are published, so that others can verify tokens", Proof: func(t *testing.T, c *kit.Cluster) {
			c.MakeServiceAccount(t, "robot")
			text := issueToken(t, c, "robot", authenticationv1.TokenRequestSpec{})
			c.BindEverywhere(t, "ClusterRole/system:service-account-issuer-discovery", "User/verifier-"+c.Namespace)
			c.Anonymous(t).Get(t, "/.well-known/openid-configuration").Forbidden(t,
				`cannot get path "/.well-known/openid-configuration"`)
			account := c.Bearer(t, text)
			discovered := account.Get(t, "/.well-known/openid-configuration").OK(t)
			kit.Equal(t, discovered.Header.Get("Content-Type"), "application/json")
			if discovered.Text(t, "issuer") != firstIssuer || !strings.HasSuffix(discovered.Text(t, "jwks_uri"), "/openid/v1/jwks") {
				t.Errorf("the configuration is %s", discovered.Body)
			}
			keys := account.Get(t, "/openid/v1/jwks").OK(t)
			kit.Equal(t, keys.Header.Get("Content-Type"), "application/jwk-set+json")
			verifyToken(t, text, keys.Body)
		}},
	}
}

// accountOnce returns the account robot, and creates it if necessary.
func accountOnce(t testing.TB, c *kit.Cluster) *corev1.ServiceAccount {
	t.Helper()
	if account, err := c.Kube.CoreV1().ServiceAccounts(c.Namespace).Get(t.Context(), "robot", metav1.GetOptions{}); err == nil {
		return account
	}
	return c.MakeServiceAccount(t, "robot")
}

// verifyToken fails the test unless one of the keys, a JSON Web Key Set (RFC 7517), has signed the token.
func verifyToken(t testing.TB, token string, keys []byte) {
	t.Helper()
	var set struct {
		Keys []struct{ Kid, Alg, N, E string }
	}
	harness.Must(t, json.Unmarshal(keys, &set))
	i := strings.LastIndex(token, ".")
	var head struct{ Kid string }
	decode := func(text string) []byte {
		raw := kit.Must(base64.RawURLEncoding.DecodeString(text))(t)
		return raw
	}
	harness.Must(t, json.Unmarshal(decode(strings.Split(token, ".")[0]), &head))
	for _, key := range set.Keys {
		if key.Kid != head.Kid || key.Alg != "RS256" {
			continue
		}
		public := &rsa.PublicKey{N: new(big.Int).SetBytes(decode(key.N)), E: int(new(big.Int).SetBytes(decode(key.E)).Int64())}
		hash := sha256.Sum256([]byte(token[:i]))
		if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, hash[:], decode(token[i+1:])); err != nil {
			t.Errorf("the token is not signed with key %s: %v", key.Kid, err)
		}
		return
	}
	t.Errorf("there is no key %q in %s", head.Kid, keys)
}
