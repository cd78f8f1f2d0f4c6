package loopback

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

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
