package server

import (
	"context"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/console"
)

// tokenKey has the token of a request in its context, which authentication removes from the headers.
type tokenKey struct{}

func withToken(r *http.Request) *http.Request {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found || r.Header.Get(authenticationv1.ImpersonateUserHeader) != "" {
		token = ""
	}
	return r.WithContext(context.WithValue(r.Context(), tokenKey{}, token))
}

// withTrials serves what the console can't do in a browser. Every user may turn YAML into JSON.
func (s *Server) withTrials(next http.Handler) http.Handler {
	if !s.options.Console {
		return next
	}
	trials := &console.Trials{Kubeconfig: s.asCaller}
	if s.options.ConsoleTry {
		trials.Program = s.options.Program
	}
	authorized := apifilters.WithAuthorization(trials, s.authorization.Authorizer, codecs.General())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := request.UserFrom(r.Context())
		switch {
		case !console.ServesTrials(r.URL.Path):
			next.ServeHTTP(w, r)
		case r.URL.Path == console.ObjectsPath && caller != nil && caller.GetName() != user.Anonymous:
			trials.ServeHTTP(w, r)
		default:
			authorized.ServeHTTP(w, r)
		}
	})
}

// asCaller returns a kubeconfig with the token of a request: a process that has it can do what its user can, and no more.
func (s *Server) asCaller(r *http.Request) ([]byte, error) {
	token, _ := r.Context().Value(tokenKey{}).(string)
	if token == "" {
		return nil, apierrors.NewBadRequest("a trial needs a bearer token, of the user without impersonation: it reads the cluster with it")
	}
	text, err := s.Kubeconfig("console")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, err
	}
	name := config.Contexts[config.CurrentContext].AuthInfo
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: {Token: token}}
	return clientcmd.Write(*config)
}
