package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/codecs"
)

// A cluster is awake on one server of the database. Another one passes the requests for it on, as the host of the other one gets them from its
// clients: with their credentials. A token is in a header anyway; the certificate with which the client has connected is put into one, as is
// its address. Only other servers of the database are believed what these headers say.
const (
	certificatesHeader = "X-Sqube-Client-Certificates" // base64 of each, the client's first
	addressHeader      = "X-Sqube-Client-Address"
	// movedHeader marks the answer of a server that does not have the cluster: the request had no effect, and may be sent to another one.
	movedHeader = "X-Sqube-Moved"
)

const (
	// ownerWait is how long a request waits for an owner that can be reached: longer than it takes until another server may take over.
	ownerWait = 15 * time.Second
	// ownerPause is the pause before it is looked for again.
	ownerPause = 100 * time.Millisecond
	// peerTimeout limits connecting to another server, and how long that may not answer to a ping.
	peerTimeout = 2 * time.Second
	// maxKept is how large a body may be that is kept so that it can be sent again.
	maxKept = 1 << 20
)

// peers passes requests on to other servers.
type peers struct {
	Shared
	host    *server.Server
	streams http.RoundTripper // HTTP/2
	whole   http.RoundTripper // HTTP/1.1, for connections that change to another protocol
}

func newPeers(shared Shared, host *server.Server) (*peers, error) {
	config, err := host.PeerTLS()
	if err != nil {
		return nil, err
	}
	return &peers{Shared: shared, host: host, streams: transportOf(config, true), whole: transportOf(config, false)}, nil
}

// transportOf returns a transport by HTTP/2 if streams is set, and otherwise by HTTP/1.1. It notices soon that a server is gone.
func transportOf(config *tls.Config, streams bool) *http.Transport {
	dialer := &net.Dialer{Timeout: peerTimeout}
	made := &http.Transport{
		TLSClientConfig: config.Clone(), DialContext: dialer.DialContext, TLSHandshakeTimeout: peerTimeout,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, DisableCompression: true, ForceAttemptHTTP2: streams,
	}
	if streams {
		made.HTTP2 = &http.HTTP2Config{SendPingTimeout: peerTimeout, PingTimeout: peerTimeout}
	} else {
		made.TLSClientConfig.NextProtos = nil
		made.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return made
}

// passed says that a request comes from another server of the database.
type passedKey struct{}

func passed(ctx context.Context) bool { return ctx.Value(passedKey{}) != nil }

// originalKey is for those headers of a request that say who sent it: whoever recognizes a user removes them.
type originalKey struct{}

// credentials returns these headers.
func credentials(h http.Header) http.Header {
	found := http.Header{}
	for name, values := range h {
		if name == "Authorization" || name == "Sec-Websocket-Protocol" || strings.HasPrefix(name, "Impersonate-") {
			found[name] = values
		}
	}
	return found
}

// receive returns a request as its client has sent it. Another server may have passed it on. This one may just have started.
func (f *Fleet) receive(r *http.Request) *http.Request {
	if _, shared := f.config.Databases.(Shared); !shared {
		return r
	}
	certificates, address := r.Header.Get(certificatesHeader), r.Header.Get(addressHeader)
	received := r
	if address != "" {
		select {
		case <-f.hosting:
		case <-r.Context().Done():
		}
	}
	if p := f.others(); address != "" && p != nil && p.host.FromPeer(r) {
		received = r.WithContext(context.WithValue(r.Context(), passedKey{}, true))
		state := *r.TLS
		state.PeerCertificates, state.VerifiedChains = parse(certificates), nil
		received.TLS, received.RemoteAddr = &state, address
	}
	if certificates != "" || address != "" {
		received.Header = r.Header.Clone()
		received.Header.Del(certificatesHeader)
		received.Header.Del(addressHeader)
	}
	return received.WithContext(context.WithValue(received.Context(), originalKey{}, credentials(received.Header)))
}

func parse(certificates string) (all []*x509.Certificate) {
	for text := range strings.SplitSeq(certificates, ",") {
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil
		}
		all = append(all, certificate)
	}
	return all
}

// errMoved is returned for an answer with movedHeader.
var errMoved = errors.New("the server does not have the cluster any more")

// forward passes a request on to the server at target, and returns false if it had no effect there and can be sent again.
func (p *peers) forward(w http.ResponseWriter, r *http.Request, target, path, rawPath string) (done bool) {
	kept := keep(r)
	at, err := url.Parse(target)
	if err != nil || at.Host == "" {
		return false
	}
	done = true
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1, Transport: p.streams, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(out *httputil.ProxyRequest) {
			rewrite(out, at, path, rawPath)
			if out.In.ContentLength != 0 {
				out.Out.Body = kept.sent()
			}
		},
		ModifyResponse: func(response *http.Response) error {
			if response.Header.Get(movedHeader) != "" {
				return errMoved
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			switch {
			case r.Context().Err() != nil:
			case kept.again() && repeatable(r, err):
				r.Body = kept.sent() // for whoever serves it next
				done = false
			default:
				unknown(w, r)
			}
		},
	}
	if r.Header.Get("Upgrade") != "" {
		proxy.Transport = p.whole
	}
	proxy.ServeHTTP(w, r)
	return done
}

// unknown answers a request of which nobody knows whether it had an effect.
func unknown(w http.ResponseWriter, r *http.Request) {
	codecs.WriteError(w, r, apierrors.NewTimeoutError("the server that has the cluster did not answer; the request may have had an effect", 1))
}

// repeatable reports whether a request with that error had no effect.
func repeatable(r *http.Request, err error) bool {
	var dialing *net.OpError
	return errors.Is(err, errMoved) || r.Method == http.MethodGet || r.Method == http.MethodHead || errors.As(err, &dialing) && dialing.Op == "dial"
}

func rewrite(out *httputil.ProxyRequest, at *url.URL, path, rawPath string) {
	out.Out.URL.Scheme, out.Out.URL.Host = at.Scheme, at.Host
	out.Out.URL.Path, out.Out.URL.RawPath, out.Out.URL.RawQuery = path, rawPath, out.In.URL.RawQuery
	out.Out.Host = out.In.Host // the answer may name it
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := out.In.Header[name]; values != nil {
			out.Out.Header[name] = values
		}
	}
	original, _ := out.In.Context().Value(originalKey{}).(http.Header)
	maps.Copy(out.Out.Header, original)
	out.Out.Header.Set(addressHeader, out.In.RemoteAddr)
	out.Out.Header.Del(certificatesHeader)
	if out.In.TLS != nil && len(out.In.TLS.PeerCertificates) > 0 {
		var all []string
		for _, certificate := range out.In.TLS.PeerCertificates {
			all = append(all, base64.StdEncoding.EncodeToString(certificate.Raw))
		}
		out.Out.Header.Set(certificatesHeader, strings.Join(all, ","))
	}
}

// body is that of a request which may be sent more than once.
type body struct {
	io.ReadCloser
	kept  []byte // nil if it is too large
	begun *atomic.Bool
}

// keep reads the body of a request, if it is not too large, so that it can be sent again.
func keep(r *http.Request) *body {
	if known, ok := r.Body.(*body); ok {
		return known
	}
	b := &body{ReadCloser: r.Body, begun: &atomic.Bool{}}
	if b.ReadCloser == nil {
		b.ReadCloser = http.NoBody
	}
	switch {
	case b.ReadCloser == http.NoBody || r.ContentLength == 0:
		b.kept = []byte{}
	case 0 < r.ContentLength && r.ContentLength <= maxKept:
		if kept, err := io.ReadAll(r.Body); err == nil {
			b.kept = kept
		}
	}
	r.Body = b.sent()
	return b
}

// sent is the body for one attempt.
func (b *body) sent() *body {
	next := &body{ReadCloser: b.ReadCloser, kept: b.kept, begun: b.begun}
	if b.kept != nil {
		next.ReadCloser = io.NopCloser(bytes.NewReader(b.kept))
	}
	return next
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.begun.Store(true)
	return b.ReadCloser.Read(p)
}

// Close implements io.Closer. The server closes the body.
func (b *body) Close() error { return nil }

// again reports whether it can be sent once more.
func (b *body) again() bool { return b.kept != nil || !b.begun.Load() }

// passOn passes a request for a cluster on to the server that has it awake. It returns false if this server is to serve it. p is nil if no
// other server uses the database.
func (p *peers) passOn(w http.ResponseWriter, r *http.Request, c *cluster, path, rawPath string) (done bool) {
	if p == nil {
		return false
	}
	for deadline := time.Now().Add(ownerWait); ; {
		id, awake := c.state()
		switch {
		case id == "":
			return false
		case awake && p.Holds(id):
			return false
		case p.host.Serving().Err() != nil:
			moved(w, r)
			return true
		}
		owner, err := p.Owner(r.Context(), id)
		switch {
		case r.Context().Err() != nil:
			return true
		case err != nil:
			retryLater(w, r, "the server that has the cluster can't be found: "+err.Error())
			return true
		case owner == "" && !awake:
			return false
		case owner != "" && passed(r.Context()):
			moved(w, r)
			return true
		case owner != "" && p.forward(w, r, owner, path, rawPath):
			return true
		case time.Now().After(deadline):
			retryLater(w, r, "the server that has the cluster can't be reached")
			return true
		}
		select {
		case <-r.Context().Done():
			return true
		case <-time.After(ownerPause):
		}
	}
}

// moved answers a request that another server is to serve.
func moved(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(movedHeader, "true")
	retryLater(w, r, "another server has the cluster awake")
}

func retryLater(w http.ResponseWriter, r *http.Request, message string) {
	w.Header().Set("Retry-After", "1")
	codecs.WriteError(w, r, apierrors.NewServiceUnavailable(message+"; try again"))
}

// join lets other servers pass requests on to this one, and the other way around, if there may be others.
func (f *Fleet) join(ctx context.Context, host *server.Server) (*peers, error) {
	shared, ok := f.config.Databases.(Shared)
	if !ok {
		return nil, nil
	}
	p, err := newPeers(shared, host)
	if err == nil {
		err = shared.Join(ctx, host.PeerURL(), f.lost)
	}
	return p, err
}

// lost ends the server of a cluster that another server may have taken over.
func (f *Fleet) lost(id string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, c := range f.clusters {
		if database, awake := c.state(); awake && database == id {
			go c.stop(context.Background())
		}
	}
}

// state returns the id of the cluster's database, "" if that is not made yet, and whether the cluster is awake, or waking up or falling asleep.
func (c *cluster) state() (database string, awake bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.made {
		return "", c.running != nil
	}
	return c.id, c.running != nil
}
