package loopback

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// identityKey is private so that no other package can put an identity into a context.
type identityKey struct{}

// loopbackUser is the user of in-process clients that state no other, with the name and groups of kube-apiserver's own loopback client.
var loopbackUser = user.DefaultInfo{
	Name:   user.APIServerUser,
	Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated},
}

func withIdentity(ctx context.Context, who *user.DefaultInfo) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// Authenticator authenticates requests made through a [Transport], and no others. It must be the first in the union of
// authenticators. It never returns an error: other requests go to the next authenticator.
var Authenticator authenticator.Request = authenticator.RequestFunc(authenticate)

func authenticate(req *http.Request) (*authenticator.Response, bool, error) {
	who, ok := req.Context().Value(identityKey{}).(*user.DefaultInfo)
	if !ok {
		return nil, false, nil
	}
	// A new copy for every request, since the user.Info's slices and map may be kept.
	caller := *who
	caller.Groups, caller.Extra = slices.Clone(who.Groups), maps.Clone(who.Extra)
	return &authenticator.Response{User: &caller}, true, nil
}

// Made reports whether a request was made through a [Transport].
func Made(req *http.Request) bool {
	_, ok := req.Context().Value(identityKey{}).(*user.DefaultInfo)
	return ok
}
