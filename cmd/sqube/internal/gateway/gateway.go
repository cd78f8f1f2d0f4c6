// Package gateway gives the programs of one user an address on this machine that leads to a server with credentials that they don't have.
package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// Gateway passes requests to a server.
type Gateway struct {
	// Kubeconfig is a file with the address and a token, in a private folder that also has room for caches: Folder.
	Kubeconfig, Folder string

	token    string
	served   *http.Server
	requests atomic.Int64
}

// Options are those of a gateway.
type Options struct {
	// Context and Namespace are those of the kubeconfig.
	Context, Namespace string
	// Parent is where its folder is made, "" for the folder of temporary files.
	Parent string
	// Answered is called with every answer. Optional.
	Answered func(*http.Response)
}

// Open opens a gateway with the rights of config. It listens at 127.0.0.1 and a random port. The caller closes it.
func Open(config *rest.Config, o Options) (g *Gateway, err error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g = &Gateway{token: rand.Text()}
	if g.Folder, err = os.MkdirTemp(o.Parent, "sqube-gateway-"); err != nil { // for this user alone, whatever the umask
		return nil, errors.Join(err, listener.Close())
	}
	g.Kubeconfig = filepath.Join(g.Folder, "kubeconfig")
	if err := g.write("https://"+listener.Addr().String(), o, certificate); err != nil {
		return nil, errors.Join(err, listener.Close(), os.RemoveAll(g.Folder))
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path})
			r.Out.Header.Del("Authorization") // so that the transport adds its own
		},
		ModifyResponse: func(answer *http.Response) error {
			if o.Answered != nil {
				o.Answered(answer)
			}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0), // the client gets the error
	}
	g.served = &http.Server{
		Handler: g.checked(proxy), ReadHeaderTimeout: 10 * time.Second, ErrorLog: proxy.ErrorLog,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
	}
	go func() { _ = g.served.ServeTLS(listener, "", "") }() // until Close
	return g, nil
}

// write writes the kubeconfig.
func (g *Gateway) write(address string, o Options, authority []byte) error {
	name := o.Context
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: address, CertificateAuthorityData: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: g.token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: o.Namespace}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, g.Kubeconfig)
}

// checked refuses requests without the token: other users of the machine can connect, too.
func (g *Gateway) checked(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(g.token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 0 {
			http.Error(w, "want the token of the kubeconfig", http.StatusUnauthorized)
			return
		}
		g.requests.Add(1)
		next.ServeHTTP(w, r)
	})
}

// Requests returns how many requests it has passed on.
func (g *Gateway) Requests() int64 { return g.requests.Load() }

// Close ends the gateway and removes its folder.
func (g *Gateway) Close() error {
	ended, cancel := context.WithTimeout(context.Background(), time.Second) // for answers on their way
	defer cancel()
	if err := g.served.Shutdown(ended); err != nil {
		_ = g.served.Close() // what did not end in time
	}
	return os.RemoveAll(g.Folder)
}
