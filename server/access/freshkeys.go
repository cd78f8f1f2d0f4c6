package access

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"sync"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/apimachinery/pkg/util/wait"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver"
	apiservervalidation "k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
)

const (
	// refetch is how often an issuer may be asked for its keys because of tokens that its known keys have not signed: such tokens are free.
	refetch = 10 * time.Second
	// fetching is how long a request waits for that.
	fetching = 5 * time.Second
	// maxKeys is how many keys of an issuer are remembered by their ids.
	maxKeys = 100
)

// freshKeys accepts ID tokens with a key that an issuer has published since its keys were read. Upstream reads them again only when the answer
// of the issuer has expired, which can take a week; OpenID Connect Core 1.0, section 10.1.1, has the verifier read them when it sees a new key.
type freshKeys struct {
	next      authenticator.Request
	options   kubeoptions.BuiltInAuthenticationOptions // those about issuers
	own       []string                                 // the issuers of service accounts' tokens
	cluster   Cluster
	audiences authenticator.Audiences
	ctx       context.Context // until no more requests arrive

	mu      sync.Mutex
	file    []byte // of the configuration
	read    time.Time
	issuers map[string]*freshIssuer
}

// freshIssuer is an issuer with the keys that were read last.
type freshIssuer struct {
	apiserver.JWTAuthenticator
	algorithms []string

	mu     sync.Mutex // held while they are read
	began  time.Time
	tokens authenticator.Token // nil if they were not read yet
	stop   context.CancelFunc  // of tokens
	keys   map[string]bool     // the ids of those that have signed a token
}

// AuthenticateRequest implements authenticator.Request.
func (f *freshKeys) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	token := TokenIn(r)
	response, ok, err := f.next.AuthenticateRequest(r)
	if ok || token == "" {
		return response, ok, err
	}
	public := jwt.Claims{}
	parsed, wrong := jwt.ParseSigned(token)
	if wrong != nil || len(parsed.Headers) != 1 || parsed.UnsafeClaimsWithoutVerification(&public) != nil {
		return response, ok, err
	}
	issuer := f.issuer(public.Issuer)
	if issuer == nil {
		return response, ok, err
	}
	key := parsed.Headers[0].KeyID
	tokens := issuer.tokensFor(key, func() (authenticator.Token, context.CancelFunc, error) { return f.fetch(issuer) })
	if tokens == nil {
		return response, ok, err
	}
	tokens = authenticator.WrapAudienceAgnosticToken(f.audiences, tokens)
	found := group.NewAuthenticatedGroupAdder(union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens)))
	again, accepted, _ := found.AuthenticateRequest(r) // the first error says as much
	if !accepted {
		return response, ok, err
	}
	issuer.accepted(key)
	return again, true, nil
}

// issuer returns a trusted issuer; nil if there is none of that name.
func (f *freshKeys) issuer(url string) *freshIssuer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.issuers[url] == nil && time.Since(f.read) < refetch { // a token of somebody else
		return nil
	}
	file := []byte{}
	if path := f.options.AuthenticationConfigFile; path != "" {
		var err error
		if file, err = os.ReadFile(path); err != nil {
			return nil
		}
	}
	f.read = time.Now()
	if f.issuers == nil || !bytes.Equal(file, f.file) {
		for _, former := range f.issuers {
			former.end()
		}
		f.file, f.issuers = file, f.trusted()
	}
	return f.issuers[url]
}

// trusted reads the configuration. One that is not valid trusts nobody here; upstream keeps the one before.
func (f *freshKeys) trusted() map[string]*freshIssuer {
	found := map[string]*freshIssuer{}
	config, err := f.options.ToAuthenticationConfig()
	if err != nil {
		return found
	}
	if errs := apiservervalidation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), config.AuthenticationConfig, f.own); len(errs) > 0 {
		return found
	}
	for _, jwt := range config.AuthenticationConfig.JWT {
		found[jwt.Issuer.URL] = &freshIssuer{JWTAuthenticator: jwt, algorithms: config.OIDCSigningAlgs, keys: map[string]bool{}}
	}
	return found
}

// fetch returns an authenticator of an issuer that has none of its documents yet.
func (f *freshKeys) fetch(issuer *freshIssuer) (_ authenticator.Token, stop context.CancelFunc, err error) {
	ctx, cancel := context.WithCancel(f.ctx)
	options := oidc.Options{
		JWTAuthenticator: issuer.JWTAuthenticator, SupportedSigningAlgs: issuer.algorithms, DisallowedIssuers: f.own, APIServerID: f.cluster.ServerID,
	}
	if f.cluster.Egress != nil {
		options.EgressLookup = f.cluster.Egress.Lookup
	}
	if authority := issuer.Issuer.CertificateAuthority; authority != "" {
		options.CAContentProvider, err = dynamiccertificates.NewStaticCAContent("issuer", []byte(authority))
	}
	var made oidc.AuthenticatorTokenWithHealthCheck
	if err == nil {
		made, err = oidc.New(ctx, options)
	}
	if err == nil {
		err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, fetching, true, func(context.Context) (bool, error) { return made.HealthCheck() == nil, nil })
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return made, cancel, nil
}

// tokensFor returns an authenticator of tokens that a key signs, with keys that are fetched if it is time for that; nil if there is none.
func (i *freshIssuer) tokensFor(key string, fetch func() (authenticator.Token, context.CancelFunc, error)) authenticator.Token {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.keys[key] || time.Since(i.began) < refetch {
		return i.tokens
	}
	i.began = time.Now()
	tokens, stop, err := fetch()
	if err != nil {
		return nil
	}
	if i.stop != nil {
		i.stop()
	}
	i.tokens, i.stop, i.keys = tokens, stop, map[string]bool{}
	return tokens
}

// accepted remembers a key that has signed a token.
func (i *freshIssuer) accepted(key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.keys) < maxKeys {
		i.keys[key] = true
	}
}

func (i *freshIssuer) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil {
		i.stop()
	}
	i.tokens, i.stop, i.keys, i.began = nil, nil, map[string]bool{}, time.Now()
}
