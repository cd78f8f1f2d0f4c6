package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc"
	"github.com/spf13/pflag"
	"golang.org/x/oauth2"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
)

const (
	signInPath   = Path + "/oidc/"
	callbackPath = signInPath + "callback"

	// signInCookie remembers a sign-in in the browser that began it. The prefix keeps other hosts, also of the same domain, from setting it.
	signInCookie = "__Host-sqube-oidc"
	// signInTime is how long a user may take at the issuer.
	signInTime = 10 * time.Minute
	// discoveryTime is how long an issuer's discovery document is remembered.
	discoveryTime = 10 * time.Minute
	issuerTimeout = 10 * time.Second
	// trustedTime is how long a changed --authentication-config may go unnoticed.
	trustedTime = 10 * time.Second
)

// SignInOptions say how the console is known to an OpenID Connect issuer.
type SignInOptions struct {
	ClientID    string // "" for the first audience of the issuer's tokens
	SecretFile  string // of a confidential client
	ExtraScopes []string
}

// AddFlags adds the flags to fs.
func (o *SignInOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ClientID, "console-oidc-client-id", "", "The client that the console is for the OpenID Connect issuer, which must let it return to https://SERVER/console/oidc/callback for each name of the server. If unset, --oidc-client-id, or with --authentication-config the first audience of the first issuer.")
	fs.StringVar(&o.SecretFile, "console-oidc-client-secret-file", "", "File with the secret of that client. Not needed if the issuer takes the console for a public client, which proves itself by PKCE.")
	fs.StringSliceVar(&o.ExtraScopes, "console-oidc-extra-scopes", nil, "Scopes that the console asks the issuer for in addition to openid, such as email,groups, so that ID tokens have the claims that name users and groups.")
}

// Validate checks the flags for a server that trusts an issuer or none.
func (o *SignInOptions) Validate(trustsIssuer bool) error {
	if !trustsIssuer && (o.ClientID != "" || o.SecretFile != "" || len(o.ExtraScopes) > 0) {
		return errors.New("--console-oidc-client-id, --console-oidc-client-secret-file and --console-oidc-extra-scopes need an issuer: --oidc-issuer-url or --authentication-config")
	}
	if o.SecretFile != "" {
		if _, err := os.ReadFile(o.SecretFile); err != nil {
			return fmt.Errorf("--console-oidc-client-secret-file must name a readable file: %w", err)
		}
	}
	return nil
}

// Issuer is an OpenID Connect issuer whose ID tokens the API accepts.
type Issuer struct {
	URL, DiscoveryURL string // DiscoveryURL is "" if it follows from URL
	Audiences         []string
	Authority         string                                                            // CAs in PEM, "" for those of the machine
	Dial              func(ctx context.Context, network, addr string) (net.Conn, error) // nil to connect directly
}

// SignIn signs users in with the authorization code flow of OpenID Connect (with PKCE, RFC 7636). It remembers no sign-in, so the
// browser may return to another server than the one that sent it away: what belongs to a sign-in is in a cookie.
type SignIn struct {
	SignInOptions
	// Issuers returns those that are trusted now.
	Issuers func() ([]Issuer, error)

	trusted atomic.Pointer[trusted]
	found   atomic.Pointer[discovered]
}

// trusted are issuers as they were a moment ago: anybody may ask, and reading and checking them takes milliseconds.
type trusted struct {
	issuers []Issuer
	until   time.Time
}

// discovered is what the discovery document of an issuer says.
type discovered struct {
	Issuer
	provider *oidc.Provider
	client   *http.Client
	until    time.Time
}

// ServesSignIn reports whether a path is for SignIn.
func ServesSignIn(path string) bool { return strings.HasPrefix(path, signInPath) }

// ServeHTTP implements http.Handler.
func (s *SignIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	switch strings.TrimPrefix(r.URL.Path, signInPath) {
	case "issuer":
		s.name(w)
	case "login":
		s.login(w, r)
	case "callback":
		s.callback(w, r)
	default:
		http.NotFound(w, r)
	}
}

// name tells the page at which host users sign in; "" if they can't.
func (s *SignIn) name(w http.ResponseWriter) {
	host := ""
	if issuer, err := s.issuer(); err == nil && issuer != nil {
		if parsed, err := url.Parse(issuer.URL); err == nil {
			host = parsed.Host
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"host": host})
}

// issuer returns the issuer at which users sign in: of those that are trusted the one that issues tokens for the console, or the first;
// nil if there is none.
func (s *SignIn) issuer() (*Issuer, error) {
	known := s.trusted.Load()
	if known == nil || time.Now().After(known.until) {
		issuers, err := s.Issuers()
		if err != nil {
			return nil, err
		}
		known = &trusted{issuers, time.Now().Add(trustedTime)}
		s.trusted.Store(known)
	}
	all := known.issuers
	if len(all) == 0 {
		return nil, nil
	}
	i := slices.IndexFunc(all, func(i Issuer) bool { return slices.Contains(i.Audiences, s.ClientID) })
	return &all[max(i, 0)], nil
}

// login sends the browser to the issuer.
func (s *SignIn) login(w http.ResponseWriter, r *http.Request) {
	issuer, err := s.discover()
	if err != nil {
		fail(w, err)
		return
	}
	config, err := s.config(issuer, r)
	if err != nil {
		fail(w, err)
		return
	}
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	http.SetCookie(w, cookie(strings.Join([]string{state, nonce, verifier}, "."), signInTime))
	http.Redirect(w, r, config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), http.StatusFound)
}

// cookie is Lax, since the redirect from the issuer must send it.
func cookie(value string, age time.Duration) *http.Cookie {
	c := &http.Cookie{Name: signInCookie, Value: value, Path: "/", MaxAge: int(age.Seconds()), HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode}
	if age == 0 {
		c.MaxAge = -1
	}
	return c
}

// callback exchanges the code that the browser brings from the issuer for an ID token, and hands that to the page.
func (s *SignIn) callback(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, cookie("", 0))
	sent, _ := r.Cookie(signInCookie)
	var parts []string
	if sent != nil {
		parts = strings.Split(sent.Value, ".")
	}
	query := r.URL.Query()
	// Without this, another site could sign the user in as somebody else, or have the console show its own texts.
	if len(parts) != 3 || subtle.ConstantTimeCompare([]byte(parts[0]), []byte(query.Get("state"))) != 1 {
		fail(w, refusal{"This sign-in did not begin in this browser, was already used, or took more than 10 minutes."})
		return
	}
	if code := query.Get("error"); code != "" {
		fail(w, refusal{issuerSaid("The issuer did not sign you in", code, query.Get("error_description"))})
		return
	}
	token, err := s.exchange(r, query.Get("code"), parts[1], parts[2])
	if err != nil {
		fail(w, err)
		return
	}
	show(w, http.StatusOK, result{Token: token})
}

func (s *SignIn) exchange(r *http.Request, code, nonce, verifier string) (string, error) {
	issuer, err := s.discover()
	if err != nil {
		return "", err
	}
	config, err := s.config(issuer, r)
	if err != nil {
		return "", err
	}
	ctx := oidc.ClientContext(r.Context(), issuer.client)
	response, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		return "", refusal{issuerSaid("The issuer refused the console", cmp.Or(refused.ErrorCode, refused.Response.Status), refused.ErrorDescription)}
	}
	if err != nil {
		return "", unreachable(issuer.URL, err)
	}
	token, _ := response.Extra("id_token").(string)
	if token == "" {
		return "", refusal{"The issuer returned no ID token."}
	}
	verified, err := issuer.provider.Verifier(&oidc.Config{ClientID: config.ClientID}).Verify(ctx, token)
	switch {
	case err != nil && (strings.Contains(err.Error(), "token is expired") || strings.Contains(err.Error(), "before the nbf")):
		return "", refusal{fmt.Sprintf("The issuer’s token is not valid at %s, the time of this server. The clocks of the two may differ.", time.Now().UTC().Format(time.RFC3339))}
	case err != nil:
		klog.InfoS("The console refused an ID token", "issuer", issuer.URL, "err", err)
		return "", refusal{"The issuer’s token is not valid. The server’s log says why."}
	case verified.Nonce != nonce:
		return "", refusal{"The issuer’s token is for another sign-in (its nonce is wrong). Please sign in again."}
	}
	return token, nil
}

// config is for a server under the name that the browser uses. A client that forges a Host header gets a URL to which the issuer does not return,
// since it knows those of the console; the cookie is for that name alone.
func (s *SignIn) config(issuer *discovered, r *http.Request) (*oauth2.Config, error) {
	c := &oauth2.Config{
		ClientID: s.ClientID, Endpoint: issuer.provider.Endpoint(), Scopes: append([]string{oidc.ScopeOpenID}, s.ExtraScopes...),
		RedirectURL: (&url.URL{Scheme: "https", Host: r.Host, Path: callbackPath}).String(),
	}
	if c.ClientID == "" && len(issuer.Audiences) > 0 {
		c.ClientID = issuer.Audiences[0]
	}
	var says struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	if s.SecretFile == "" {
		return c, nil
	}
	if err := issuer.provider.Claims(&says); err != nil || len(says.Methods) == 0 || slices.Contains(says.Methods, "client_secret_basic") {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	secret, err := os.ReadFile(s.SecretFile)
	if err != nil {
		klog.ErrorS(err, "The console can't read its secret for the OpenID Connect issuer")
		return nil, refusal{"The server can’t read the console’s secret. Its log says why."}
	}
	c.ClientSecret = strings.TrimSpace(string(secret))
	return c, nil
}

// discover asks the issuer where users sign in.
func (s *SignIn) discover() (*discovered, error) {
	issuer, err := s.issuer()
	if err != nil {
		klog.ErrorS(err, "The console can't read which OpenID Connect issuers are trusted")
		return nil, refusal{"The server can’t read which issuers it trusts. Its log says why."}
	}
	if issuer == nil {
		return nil, refusal{"This server trusts no issuer."}
	}
	if known := s.found.Load(); known != nil && time.Now().Before(known.until) && known.URL == issuer.URL && known.DiscoveryURL == issuer.DiscoveryURL &&
		known.Authority == issuer.Authority && slices.Equal(known.Audiences, issuer.Audiences) {
		return known, nil
	}
	found := &discovered{Issuer: *issuer, client: issuer.newClient(), until: time.Now().Add(discoveryTime)}
	// The provider reads the issuer's keys later, for other requests.
	if found.provider, err = oidc.NewProvider(oidc.ClientContext(context.Background(), found.client), issuer.URL); err != nil {
		return nil, unreachable(issuer.URL, err)
	}
	s.found.Store(found)
	return found, nil
}

func (i *Issuer) newClient() *http.Client {
	transport := &http.Transport{DialContext: i.Dial, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if i.Authority != "" {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(i.Authority))
	}
	var trips http.RoundTripper = utilnet.SetTransportDefaults(transport)
	if elsewhere, err := url.Parse(i.DiscoveryURL); err == nil && i.DiscoveryURL != "" {
		trips = &discoveredElsewhere{trips, strings.TrimSuffix(i.URL, "/") + "/.well-known/openid-configuration", elsewhere}
	}
	return &http.Client{Transport: trips, Timeout: issuerTimeout}
}

// discoveredElsewhere reads the discovery document of an issuer from another URL.
type discoveredElsewhere struct {
	http.RoundTripper
	wellKnown string
	elsewhere *url.URL
}

func (d *discoveredElsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.String() == d.wellKnown {
		r = r.Clone(r.Context())
		r.URL, r.Host = d.elsewhere, d.elsewhere.Host
	}
	return d.RoundTripper.RoundTrip(r)
}

// refusal is an error that a user reads.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

func issuerSaid(what, code, description string) string {
	if code == "access_denied" && description == "" {
		return what + ": access was denied."
	}
	return fmt.Sprintf("%s: %s", what, strings.TrimSuffix(strings.Join(slices.DeleteFunc([]string{description, "(" + code + ")"}, func(s string) bool { return s == "" }), " "), "."))
}

func unreachable(issuer string, err error) error {
	klog.InfoS("The console can't use the OpenID Connect issuer", "issuer", issuer, "err", err)
	return refusal{fmt.Sprintf("The server can’t reach the issuer %s, or does not understand what it says. The server’s log says why.", issuer)}
}

func fail(w http.ResponseWriter, err error) {
	show(w, http.StatusBadRequest, result{Error: err.Error()})
}

// result is what came of a sign-in. A script of the console takes the token out of the page, which replaces itself.
type result struct{ Token, Error string }

// The page is made of strings: a template would keep the linker from leaving out what the program never calls.
const resultHead = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>sqube</title>
<link rel="icon" href="../icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="../style.css">
`

func show(w http.ResponseWriter, status int, r result) {
	w.Header().Set("Content-Type", types[".html"])
	w.WriteHeader(status)
	if r.Token != "" {
		fmt.Fprintf(w, `%s<script type="module" src="../signedin.js"></script></head><body data-token="%s"></body></html>`, resultHead, html.EscapeString(r.Token))
		return
	}
	fmt.Fprintf(w, `%s</head><body><main class="signin"><div class="card"><h1>You are not signed in</h1><p role="alert">%s</p>`+
		`<a class="button primary" href="login">Try again</a><a class="button" href="../">Back</a></div></main></body></html>`, resultHead, html.EscapeString(r.Error))
}
