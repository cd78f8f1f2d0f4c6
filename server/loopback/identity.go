package loopback

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// identityKey is private so that no other package can put an identity into a context.
type identityKey struct{}

// loopbackUser is who in-process clients are: the name and groups kube-apiserver gives its own loopback client.
var loopbackUser = user.DefaultInfo{
	Name:   user.APIServerUser,
	Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated},
}

func withIdentity(ctx context.Context) context.Context {
	return context.WithValue(ctx, identityKey{}, true)
}

// Authenticator recognizes requests made through a [Transport] and no others. It belongs first in the union of
// authenticators. It never returns an error: a request that came another way is simply not its own.
var Authenticator authenticator.Request = authenticator.RequestFunc(authenticate)

func authenticate(req *http.Request) (*authenticator.Response, bool, error) {
	if ours, ok := req.Context().Value(identityKey{}).(bool); !ok || !ours {
		return nil, false, nil
	}
	// A fresh copy for every request: what receives a user.Info may keep its slices.
	caller := loopbackUser
	caller.Groups = append([]string(nil), loopbackUser.Groups...)
	return &authenticator.Response{User: &caller}, true, nil
}
