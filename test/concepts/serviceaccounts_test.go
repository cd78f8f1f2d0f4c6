package concepts

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
)

// The issuers of service account tokens, --service-account-issuer. The first is named in new tokens.
const (
	firstIssuer  = "https://first.example.com"
	secondIssuer = "https://second.example.com"
)

// Keys of what a token says about its bearer beyond user and groups.
const (
	credentialID = "authentication.kubernetes.io/credential-id"
	podName      = "authentication.kubernetes.io/pod-name"
	podUID       = "authentication.kubernetes.io/pod-uid"
	nodeName     = "authentication.kubernetes.io/node-name"
	nodeUID      = "authentication.kubernetes.io/node-uid"
)

// newKey makes an RSA key, and a file with it in PEM.
func newKey(t testing.TB) (*rsa.PrivateKey, string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, writeFile(t, "sa.key", string(text))
}

// account makes a ServiceAccount in the promise's namespace.
func (c *cluster) account(t testing.TB, name string) *corev1.ServiceAccount {
	t.Helper()
	account, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// requestToken asks for a token of an account.
func (c *cluster) requestToken(t testing.TB, account string, spec authenticationv1.TokenRequestSpec) answer {
	t.Helper()
	return c.post(t, c.path("v1", "serviceaccounts", account, "token"), authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}, Spec: spec,
	})
}

// issueToken returns a token of an account.
func (c *cluster) issueToken(t testing.TB, account string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	return c.requestToken(t, account, spec).want(t, http.StatusCreated).text(t, "status", "token")
}

// accountGroups are the groups of the accounts in the promise's namespace.
func (c *cluster) accountGroups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + c.namespace, authenticated}
}

// isAccount fails the test unless the token is one of the account's.
func (c *cluster) isAccount(t testing.TB, token, account string) authenticationv1.UserInfo {
	t.Helper()
	return c.bearer(t, token).is(t, "system:serviceaccount:"+c.namespace+":"+account, c.accountGroups()...)
}

// claimsOf returns what a token says.
func claimsOf(t testing.TB, token string) claims {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("no JSON Web Token: %s", token)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var content claims
	if err := json.Unmarshal(payload, &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// podOn makes a Pod that runs with the account, on a node if one is named.
func (c *cluster) podOn(t testing.TB, name, account, node string) *corev1.Pod {
	t.Helper()
	pod, err := c.kube.CoreV1().Pods(c.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// node makes a Node that the promise has for itself.
func (c *cluster) node(t testing.TB, name string) *corev1.Node {
	t.Helper()
	node, err := c.kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// boundTo asks for a token that lives no longer than an object.
func boundTo(kind, name string) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name}}
}

var tokenRequests = []promise{
	{"a token is requested of an account, for as long and for whom it is meant", func(t *testing.T, c *cluster) {
		account := c.account(t, "robot")
		seconds := int64(1200)
		answer := c.requestToken(t, "robot", authenticationv1.TokenRequestSpec{Audiences: []string{firstIssuer, "vault"},
			ExpirationSeconds: &seconds}).want(t, http.StatusCreated)
		ends, err := time.Parse(time.RFC3339, answer.text(t, "status", "expirationTimestamp"))
		if err != nil {
			t.Fatal(err)
		}
		content := claimsOf(t, answer.text(t, "status", "token"))
		if content["exp"].(float64)-content["iat"].(float64) != 1200 || content["exp"] != float64(ends.Unix()) {
			t.Errorf("the token of 1200 seconds is good from %v to %v, and until %v by its status", content["iat"], content["exp"], ends.Unix())
		}
		about := content["kubernetes.io"].(map[string]any)
		switch {
		case content["iss"] != firstIssuer, content["sub"] != "system:serviceaccount:"+c.namespace+":robot", about["namespace"] != c.namespace,
			about["serviceaccount"].(map[string]any)["uid"] != string(account.UID):
			t.Errorf("the token says %v", content)
		}
		user := c.isAccount(t, answer.text(t, "status", "token"), "robot")
		if id := "JTI=" + content["jti"].(string); user.UID != string(account.UID) || !slices.Equal(user.Extra[credentialID], []string{id}) {
			t.Errorf("the bearer is %+v", user)
		}
	}},
	{"a token that says nothing of its audience is for the server, and good for an hour", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		content := claimsOf(t, c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{}))
		if content["exp"].(float64)-content["iat"].(float64) != 3600 {
			t.Errorf("it is good from %v to %v", content["iat"], content["exp"])
		}
		if audiences, _ := content["aud"].([]any); !slices.Equal(audiences, []any{firstIssuer, secondIssuer}) {
			t.Errorf("it is for %v", content["aud"])
		}
	}},
	{"no token is issued for less than ten minutes, for a missing account, or for another uid", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		seconds := int64(599)
		c.requestToken(t, "robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}).
			refused(t, http.StatusUnprocessableEntity, "Invalid", "spec.expirationSeconds", "may not specify a duration less than 10 minutes")
		c.requestToken(t, "nobody", authenticationv1.TokenRequestSpec{}).refused(t, http.StatusNotFound, "NotFound", `serviceaccounts "nobody" not found`)
		c.post(t, c.path("v1", "serviceaccounts", "robot", "token"), map[string]any{"metadata": map[string]any{"uid": "other"}}).
			refused(t, http.StatusConflict, "Conflict", "the UID in the token request (other) does not match the UID of the service account")
	}},
	{"who may create serviceaccounts/token gets tokens, and nobody else", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		ann := c.as(t, "ann")
		request := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
		ann.post(t, c.path("v1", "serviceaccounts", "robot", "token"), request).refused(t, http.StatusForbidden, "Forbidden",
			`serviceaccounts "robot" is forbidden: User "ann" cannot create resource "serviceaccounts/token" in API group "" in the namespace "`+c.namespace+`"`)
		c.allow(t, "ann", rule("create", "serviceaccounts/token", "robot"))
		ann.post(t, c.path("v1", "serviceaccounts", "robot", "token"), request).want(t, http.StatusCreated)
		ann.post(t, c.path("v1", "serviceaccounts", "default", "token"), request).refused(t, http.StatusForbidden, "Forbidden")
	}},
	{"a token bound to a Pod tells its Pod and Node, and dies with the Pod", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		node := c.node(t, c.namespace)
		pod := c.podOn(t, "p", "robot", node.Name)
		token, second := c.issueToken(t, "robot", boundTo("Pod", "p")), c.issueToken(t, "robot", boundTo("Pod", "p"))
		user := c.isAccount(t, token, "robot")
		for key, want := range map[string]string{podName: "p", podUID: string(pod.UID), nodeName: node.Name, nodeUID: string(node.UID)} {
			if got := user.Extra[key]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s is %q", key, got)
			}
		}
		c.delete(t, c.path("v1", "pods", "p")+"?gracePeriodSeconds=0").want(t, http.StatusOK)
		eventually(t, "a token that was not used before is refused", func() bool { return !c.bearer(t, second).known(t) })
		eventually(t, "a token that was used is forgotten", func() bool { return !c.bearer(t, token).known(t) })
		c.podOn(t, "p", "robot", "") // another one of that name
		c.bearer(t, second).isNobody(t)
	}},
	{"a token bound to a Secret or a Node dies with it", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		node := c.node(t, c.namespace)
		c.post(t, c.path("v1", "secrets"), map[string]any{"metadata": map[string]any{"name": "s"}}).want(t, http.StatusCreated)
		ofSecret, ofNode := c.issueToken(t, "robot", boundTo("Secret", "s")), c.issueToken(t, "robot", boundTo("Node", c.namespace))
		later := []string{c.issueToken(t, "robot", boundTo("Secret", "s")), c.issueToken(t, "robot", boundTo("Node", c.namespace))}
		c.isAccount(t, ofSecret, "robot")
		if user := c.isAccount(t, ofNode, "robot"); !slices.Equal(user.Extra[nodeUID], []string{string(node.UID)}) {
			t.Errorf("the bearer is %+v", user)
		}
		c.delete(t, c.path("v1", "secrets", "s")).want(t, http.StatusOK)
		c.delete(t, c.global("v1", "nodes", c.namespace)).want(t, http.StatusOK)
		for _, token := range later {
			eventually(t, "the token is refused", func() bool { return !c.bearer(t, token).known(t) })
		}
	}},
	{"a token is bound only to what exists, by its uid, and what belongs to the account", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		c.account(t, "other")
		c.podOn(t, "p", "robot", "")
		c.requestToken(t, "robot", boundTo("Pod", "missing")).refused(t, http.StatusNotFound, "NotFound", `pods "missing" not found`)
		c.requestToken(t, "other", boundTo("Pod", "p")).refused(t, http.StatusBadRequest, "BadRequest",
			`cannot bind token for serviceaccount "other" to pod running with different serviceaccount name.`)
		c.requestToken(t, "robot", boundTo("ConfigMap", "kube-root-ca.crt")).refused(t, http.StatusBadRequest, "BadRequest",
			"cannot bind token to object of type")
		wrong := boundTo("Pod", "p")
		wrong.BoundObjectRef.UID = "other"
		c.requestToken(t, "robot", wrong).refused(t, http.StatusConflict, "Conflict", "does not match the UID in record")
	}},
	{"the token of a deleted account is refused, also when there is a new one of that name", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		token := c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{})
		c.delete(t, c.path("v1", "serviceaccounts", "robot")).want(t, http.StatusOK)
		eventually(t, "the token is refused", func() bool { return !c.bearer(t, token).known(t) })
		c.account(t, "robot")
		c.isAccount(t, c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{}), "robot")
		c.bearer(t, token).isNobody(t)
	}},
	{"a token of the length that Pods get lives on for a year, and says when it ought to be renewed", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		c.podOn(t, "p", "robot", "")
		seconds := int64(3607)
		spec := boundTo("Pod", "p")
		spec.ExpirationSeconds = &seconds
		content := claimsOf(t, c.issueToken(t, "robot", spec))
		renew := content["kubernetes.io"].(map[string]any)["warnafter"].(float64)
		if issued := content["iat"].(float64); renew-issued != 3607 || content["exp"].(float64)-issued != 365*24*3600 {
			t.Errorf("the token is good from %v to %v, and to be renewed at %v", issued, content["exp"], renew)
		}
	}},
}

// accountTokens are the promises on tokens of accounts that the test signs itself, with the server's keys.
func (a *authenticators) accountTokens() []promise {
	token := func(t *testing.T, c *cluster, key *rsa.PrivateKey, further claims) string {
		account := c.accountOnce(t)
		all := claims{
			"iss": firstIssuer, "aud": []string{firstIssuer}, "sub": "system:serviceaccount:" + c.namespace + ":robot",
			"iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
			"kubernetes.io": map[string]any{"namespace": c.namespace, "serviceaccount": map[string]any{"name": "robot", "uid": account.UID}},
		}
		maps.Copy(all, further)
		return signToken(t, key, all)
	}
	return []promise{
		{"tokens of every --service-account-issuer are accepted, by every --service-account-key-file", func(t *testing.T, c *cluster) {
			for _, key := range []*rsa.PrivateKey{a.accounts, a.retired} {
				for _, issuer := range []string{firstIssuer, secondIssuer} {
					c.isAccount(t, token(t, c, key, claims{"iss": issuer}), "robot")
				}
			}
		}},
		{"a token is refused of another issuer or key, expired, not yet valid, or for another audience", func(t *testing.T, c *cluster) {
			stranger, _ := newKey(t)
			for what, refused := range map[string]string{
				"another issuer":   token(t, c, a.accounts, claims{"iss": "https://other.example.com"}),
				"another key":      token(t, c, stranger, nil),
				"another audience": token(t, c, a.accounts, claims{"aud": []string{"vault"}}),
				"expired":          token(t, c, a.accounts, claims{"exp": time.Now().Add(-2 * time.Minute).Unix()}),
				"not yet valid":    token(t, c, a.accounts, claims{"nbf": time.Now().Add(time.Hour).Unix()}),
				"not signed":       strings.Join(append(strings.Split(token(t, c, a.accounts, nil), ".")[:2], ""), "."),
			} {
				if c.bearer(t, refused).known(t) {
					t.Errorf("%s: the token is accepted", what)
				}
			}
		}},
		{"everybody who may can find the issuer's name and keys, and verify a token with them", func(t *testing.T, c *cluster) {
			c.account(t, "robot")
			text := c.issueToken(t, "robot", authenticationv1.TokenRequestSpec{})
			c.bindCluster(t, "ClusterRole/system:service-account-issuer-discovery", "User/verifier-"+c.namespace)
			c.anonymous(t).get(t, "/.well-known/openid-configuration").refused(t, http.StatusForbidden, "Forbidden",
				`cannot get path "/.well-known/openid-configuration"`)
			account := c.bearer(t, text)
			discovered := account.get(t, "/.well-known/openid-configuration").want(t, http.StatusOK)
			if kind := discovered.Header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("the configuration is %q", kind)
			}
			if discovered.text(t, "issuer") != firstIssuer || !strings.HasSuffix(discovered.text(t, "jwks_uri"), "/openid/v1/jwks") {
				t.Errorf("the configuration is %s", discovered.Body)
			}
			keys := account.get(t, "/openid/v1/jwks").want(t, http.StatusOK)
			if kind := keys.Header.Get("Content-Type"); kind != "application/jwk-set+json" {
				t.Errorf("the keys are %q", kind)
			}
			verifyToken(t, text, keys.Body)
		}},
	}
}

// accountOnce returns the account robot, which it makes if there is none.
func (c *cluster) accountOnce(t testing.TB) *corev1.ServiceAccount {
	t.Helper()
	if account, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Get(t.Context(), "robot", metav1.GetOptions{}); err == nil {
		return account
	}
	return c.account(t, "robot")
}

// verifyToken fails the test unless one of the keys, a JSON Web Key Set (RFC 7517), has signed the token.
func verifyToken(t testing.TB, token string, keys []byte) {
	t.Helper()
	var set struct {
		Keys []struct{ Kid, Alg, N, E string }
	}
	if err := json.Unmarshal(keys, &set); err != nil {
		t.Fatal(err)
	}
	i := strings.LastIndex(token, ".")
	var head struct{ Kid string }
	decode := func(text string) []byte {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if err := json.Unmarshal(decode(strings.Split(token, ".")[0]), &head); err != nil {
		t.Fatal(err)
	}
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
