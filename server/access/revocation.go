package access

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/auth/authenticator/token/bootstrap"
)

// checkTTL is how long it is remembered what a token's validity depends on.
const checkTTL = time.Minute

// check returns an error if a token is not valid any more. Its signature has been verified.
type check func(ctx context.Context) error

// revocation refuses a token as soon as its service account, or the object that it is bound to, is deleted, or its bootstrap Secret.
// Upstream accepts a token for ten more seconds after each verification, which it caches with what it found about these objects.
type revocation struct {
	next      authenticator.Request
	issuers   []string // of tokens that are requested; all others are of Secrets
	bound     func(token string, parsed *jwt.JSONWebToken) check
	secrets   func(token string, parsed *jwt.JSONWebToken) check
	bootstrap authenticator.Token
	known     *utilcache.LRUExpireCache // the checks of tokens: parsing one takes ten times as long as its check
}

// tokenGetter returns upstream's getter of the objects that tokens depend on.
func tokenGetter(c Cluster) serviceaccount.ServiceAccountTokenGetter {
	core, webhooks := c.Informers.Core().V1(), c.Informers.Admissionregistration().V1()
	return serviceaccountcontroller.NewGetterFromClient(c.Client, core.Secrets().Lister(), core.ServiceAccounts().Lister(), core.Pods().Lister(),
		core.Nodes().Lister(), webhooks.ValidatingWebhookConfigurations().Lister(), webhooks.MutatingWebhookConfigurations().Lister())
}

// newRevocation returns a revocation of tokens that next accepts, according to completed options.
func newRevocation(next authenticator.Request, o *Options, getter serviceaccount.ServiceAccountTokenGetter, c Cluster) (*revocation, error) {
	accounts := o.Authentication.ServiceAccounts
	secrets, err := serviceaccount.NewLegacyValidator(accounts.Lookup, getter, c.Client.CoreV1())
	if err != nil {
		return nil, err
	}
	return &revocation{
		next: next, issuers: accounts.Issuers, bound: checksWith(serviceaccount.NewValidator(getter)), secrets: checksWith(secrets),
		known:     utilcache.NewLRUExpireCache(cacheSize),
		bootstrap: bootstrap.NewTokenAuthenticator(c.Informers.Core().V1().Secrets().Lister().Secrets(metav1.NamespaceSystem)),
	}, nil
}

// checksWith returns a function that makes checks by upstream's validator, so that whatever upstream can bind a token to is checked.
func checksWith[Claims any](validator serviceaccount.Validator[Claims]) func(string, *jwt.JSONWebToken) check {
	return func(token string, parsed *jwt.JSONWebToken) check {
		public, private := &jwt.Claims{}, new(Claims)
		err := parsed.UnsafeClaimsWithoutVerification(public, private)
		return func(ctx context.Context) error {
			if err == nil {
				_, err := validator.Validate(valueless{ctx}, token, public, private)
				return err
			}
			return err
		}
	}
}

// valueless is a request's context without its values: the cache of verified tokens adds a verification's audit annotations and
// warnings to each request.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }

// AuthenticateRequest implements authenticator.Request.
func (v *revocation) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	token := TokenIn(r)
	response, ok, err := v.next.AuthenticateRequest(r)
	if err != nil || !ok || token == "" || TokenIn(r) == token { // if it has authenticated the request, upstream has removed it
		return response, ok, err
	}
	if err := v.checkOf(token, response.User.GetName())(r.Context()); err != nil {
		return nil, false, err
	}
	return response, true, nil
}

// checkOf returns the check of a token that has authenticated a user.
func (v *revocation) checkOf(token, user string) check {
	if known, ok := v.known.Get(token); ok {
		return known.(check)
	}
	made := v.newCheck(token, user)
	v.known.Add(token, made, checkTTL)
	return made
}

func (v *revocation) newCheck(token, user string) check {
	if strings.HasPrefix(user, bootstrapapi.BootstrapUserPrefix) {
		return func(ctx context.Context) error {
			_, ok, err := v.bootstrap.AuthenticateToken(ctx, token)
			if err == nil && !ok {
				err = errors.New("the bootstrap token has been deleted or has expired")
			}
			return err
		}
	}
	public := &jwt.Claims{}
	parsed, err := jwt.ParseSigned(token)
	if err == nil {
		err = parsed.UnsafeClaimsWithoutVerification(public)
	}
	switch {
	case err != nil || public.Subject != user: // a token of another authenticator
	case slices.Contains(v.issuers, public.Issuer):
		return v.bound(token, parsed)
	case public.Issuer == serviceaccount.LegacyIssuer:
		return v.secrets(token, parsed)
	}
	return func(context.Context) error { return nil }
}

// TokenIn returns the bearer token in r, or "".
func TokenIn(r *http.Request) (token string) {
	if r.Header.Get("Authorization") == "" && r.Header.Get("Sec-Websocket-Protocol") == "" {
		return ""
	}
	found := authenticator.TokenFunc(func(_ context.Context, text string) (*authenticator.Response, bool, error) {
		token = text
		return nil, false, nil
	})
	// An error here means no more than that nobody is authenticated.
	_, _, _ = union.New(bearertoken.New(found), websocket.NewProtocolAuthenticator(found)).AuthenticateRequest(r)
	return token
}
