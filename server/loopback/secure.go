package loopback

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// readHeaderTimeout limits how long a connection may keep a goroutine without sending a request.
const readHeaderTimeout = 32 * time.Second

// SecureConfig returns a client-go configuration like [Transport.Config] for clients that require TLS, such as those of webhooks:
// they add authorities and set names, for which client-go needs its own transport. Connections to any address end in this
// process, so no other process can impersonate the server, or become the loopback user.
//
// certificate is called for every handshake; clients verify its result with ca, in PEM.
func (t *Transport) SecureConfig(certificate func() (*tls.Certificate, error), ca []byte) *rest.Config {
	listener := &pipeListener{connections: make(chan net.Conn), closed: t.base.Done()}
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
	context.AfterFunc(t.base, func() { _ = server.Close() }) // closing pipes gives no error
	go func() { _ = server.ServeTLS(listener, "", "") }()    // until then, so the error is always ErrServerClosed
	return &rest.Config{
		Dial:            listener.dial,
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

// pipeListener accepts the connections that dial creates.
type pipeListener struct {
	connections chan net.Conn
	closed      <-chan struct{}
}

// dial has the signature of net.Dialer's DialContext.
func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.connections <- pipeConnection{theirs}:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, ErrShutdown
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the listener ends with the transport.
func (l *pipeListener) Close() error { return nil }

func (l *pipeListener) Addr() net.Addr { return pipeAddress{} }

// pipeConnection has the same remote address as other in-process clients, in handlers and in the audit log.
type pipeConnection struct{ net.Conn }

func (pipeConnection) RemoteAddr() net.Addr { return pipeAddress{} }

type pipeAddress struct{}

func (pipeAddress) Network() string { return "pipe" }

func (pipeAddress) String() string { return remoteAddr }
