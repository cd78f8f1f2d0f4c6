package fleet

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"regexp"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/access"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// keyring has what the guard knows of a cluster that may be asleep. Everybody may know it.
type keyring struct {
	server.Keyring
	anonymous bool // spec.anonymous
}

// identify takes over what the object of a cluster says of it.
func (c *cluster) identify(o *v1alpha1.Cluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made, c.keys.anonymous = o.Status.Database != "", o.Spec.Anonymous
	if c.keys.CA == nil { // of one that has been awake here, more is known
		c.keys.Keyring = server.Keyring{CA: o.Status.ClientKey, Accounts: o.Status.AccountKey}
	}
	c.limits = limited(c.limits, o.Spec.Limits)
}

// learn takes over the keys of a cluster that has woken up.
func (c *cluster) learn(s *server.Server) error {
	keys, err := s.Keyring()
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.keys.Keyring = keys
	}
	return err
}

// writeKeysTo notes the keys in a status, for servers that have not had the cluster awake.
func (c *cluster) writeKeysTo(s *v1alpha1.ClusterStatus) {
	if keys := c.keyring(); keys.CA != nil {
		s.ClientKey, s.AccountKey = keys.CA, keys.Accounts
	}
}

func (c *cluster) keyring() keyring {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys
}

func (c *cluster) limited() *limits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limits
}

// guard decides whose requests may wake a cluster, before anything of it is read: those of users whom the host knows, those with a pass, and
// those with a certificate or a token that the cluster itself has signed. The cluster then decides what they may do. For all others, the
// answer does not depend on whether the cluster exists, and takes as long.
type guard struct {
	visitors authenticator.Request // users of the host
	passes   *passes
	host     *server.Server
	known    *utilcache.LRUExpireCache // the callers of credentials
	tokens   *rate.Limiter             // limits how often callers who are unproved may wake a cluster
	nobody   keyring                   // of a cluster that does not exist
	refuse   http.Handler              // answers strangers
}

const (
	// knownFor is how long it is remembered who somebody is, as upstream does with tokens.
	knownFor = 10 * time.Second
	maxKnown = 4096
	// unprovedPerSecond is how many requests of unproved callers may wake a cluster.
	unprovedPerSecond = 1
	unprovedBurst     = 10
)

func newGuard(host *server.Server, passes *passes) *guard {
	return &guard{visitors: host.Visitors(), passes: passes, host: host, known: utilcache.NewLRUExpireCache(maxKnown),
		tokens: rate.NewLimiter(unprovedPerSecond, unprovedBurst), nobody: keyring{Keyring: server.Keyring{CA: someKey(), Accounts: someKey()}}, refuse: host.Unauthorized()}
}

// caller is somebody who may wake a cluster.
type caller struct {
	user user.Info // nil for one of the cluster's own, whom it recognizes itself
	// unproved means that there are no credentials, or only the cluster can say whether they are valid: the request wakes it, but does not keep it
	// awake.
	unproved bool
}

var bootstrapToken = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// recognize returns the caller of a request to a cluster, nil if there is none that may wake it. c is nil if the cluster does not exist.
func (g *guard) recognize(r *http.Request, c *cluster) *caller {
	token := access.TokenIn(r)
	var leaf *x509.Certificate
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		leaf = r.TLS.PeerCertificates[0]
	}
	is, database := g.nobody, ""
	if c != nil {
		is, database = c.keyring(), c.id
	}
	if token == "" && leaf == nil {
		if is.anonymous {
			return &caller{unproved: true}
		}
		return nil
	}
	if is.CA == nil { // it has never been awake
		is.Keyring = g.nobody.Keyring
	}
	if bootstrapToken.MatchString(token) {
		return &caller{unproved: true}
	}
	key := keyOf(database, token, leaf)
	if known, ok := g.known.Get(key); ok {
		found := known.(*caller)
		if found.user != nil {
			forgetToken(r)
		}
		return found
	}
	found, until := g.find(r, is, c, token, leaf)
	if found != nil && c != nil {
		g.known.Add(key, found, min(knownFor, time.Until(until)))
	}
	return found
}

// find is recognize without what is remembered. The caller's credentials are valid until then.
func (g *guard) find(r *http.Request, is keyring, c *cluster, token string, leaf *x509.Certificate) (found *caller, until time.Time) {
	now := time.Now()
	if p := g.passes.read(token, now); p != nil {
		if c == nil || c.id != p.Database || !g.may(r.Context(), p.Holder.user(), c, p.Rights...) {
			return nil, now
		}
		forgetToken(r)
		return &caller{user: p.user()}, time.Unix(p.Expires, 0)
	}
	if leaf != nil && signedBy(is.CA, leaf, now) {
		return &caller{}, leaf.NotAfter
	}
	if end := signedTokenUntil(is.Accounts, token); end.After(now) {
		return &caller{}, end
	}
	if response, ok, err := g.visitors.AuthenticateRequest(r); err == nil && ok {
		return &caller{user: response.User}, now.Add(knownFor)
	}
	return nil, now
}

func keyOf(database, token string, leaf *x509.Certificate) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(database + "\x00" + token + "\x00"))
	if leaf != nil {
		h.Write(leaf.Raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// signedBy reports whether the owner of a public key has issued a certificate that is valid now.
func signedBy(key []byte, leaf *x509.Certificate, now time.Time) bool {
	public, err := x509.ParsePKIXPublicKey(key)
	if err != nil || now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return false
	}
	issuer := &x509.Certificate{PublicKey: public, PublicKeyAlgorithm: algorithm(public)}
	return issuer.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature) == nil
}

func algorithm(public crypto.PublicKey) x509.PublicKeyAlgorithm {
	if _, ok := public.(*ecdsa.PublicKey); ok {
		return x509.ECDSA
	}
	return x509.RSA
}

// signedTokenUntil returns when a token of a service account ends that the owner of a public key has signed, and the zero time for other
// tokens.
func signedTokenUntil(key []byte, token string) (end time.Time) {
	parsed, err := jwt.ParseSigned(token)
	if err != nil {
		return end
	}
	public, err := x509.ParsePKIXPublicKey(key)
	claims := jwt.Claims{}
	if err != nil || parsed.Claims(public, &claims) != nil {
		return end
	}
	if claims.Expiry == nil { // of a token Secret
		return time.Now().Add(knownFor)
	}
	return claims.Expiry.Time()
}

// withToken returns an authenticator of requests by their token. It removes the token from a request that take accepts.
func withToken(take func(token string) bool) authenticator.Request {
	taken := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{}}, take(token), nil
	})
	return union.New(bearertoken.New(taken), websocket.NewProtocolAuthenticator(taken))
}

var anyToken = withToken(func(string) bool { return true })

// forgetToken removes the token of a request whose user is known, so that nobody else sees it.
func forgetToken(r *http.Request) { _, _, _ = anyToken.AuthenticateRequest(r) } // an error means only that there is none

// may reports whether a user of the host may do something with a cluster.
func (g *guard) may(ctx context.Context, who user.Info, c *cluster, rights ...right) bool {
	return !slices.ContainsFunc(rights, func(one right) bool { return !one.has(ctx, g.host.Authorizer(), who, c.name.Namespace) })
}
