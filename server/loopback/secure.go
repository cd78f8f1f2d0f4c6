package loopback

import (
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/pipenet"
)

// readHeaderTimeout limits how long a connection may keep a goroutine without sending a request.
const readHeaderTimeout = 32 * time.Second

// SecureConfig returns a client-go configuration like [Transport.Config] for clients that require TLS, such as those of webhooks:
// they add authorities and set names, for which client-go needs its own transport. Connections to any address end in this
// process, so no other process can impersonate the server, or become the loopback user.
//
// certificate is called for every handshake; clients verify its result with ca, in PEM.
func (t *Transport) SecureConfig(certificate func() (*tls.Certificate, error), ca []byte) *rest.Config {
	listener := pipenet.NewListener(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}) // the address of other in-process clients: remoteAddr
	server := &http.Server{
		Handler:           http.HandlerFunc(t.serveSecure),
		BaseContext:       func(net.Listener) context.Context { return t.base },
		ReadHeaderTimeout: readHeaderTimeout,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		},
	}
	context.AfterFunc(t.base, func() { _, _ = listener.Close(), server.Close() }) // closing pipes gives no error
	go func() { _ = server.ServeTLS(listener, "", "") }()                         // until then, so the error is always ErrServerClosed
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := listener.Dial(ctx, network, address)
		if err != nil && t.base.Err() != nil {
			err = ErrShutdown
		}
		return connection, err
	}
	return &rest.Config{
		Dial:            dial,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
}

// serveSecure serves a request from a connection of a secure client.
func (t *Transport) serveSecure(w http.ResponseWriter, r *http.Request) {
	handler, err := t.begin(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer t.running.Done()
	handler.ServeHTTP(w, r)
}

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
