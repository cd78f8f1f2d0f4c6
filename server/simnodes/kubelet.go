package simnodes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	stdlog "log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"time"
)

// kubeletPort is the port of all nodes, at which API servers get logs.
type kubeletPort struct {
	host   string
	number int32
	server *http.Server
}

func (p *kubeletPort) close() {
	if p.server != nil {
		_ = p.server.Close() // of connections that are cut
	}
}

// serve serves the part of a kubelet's API that is for logs.
func (n *Nodes) serve() error {
	certificate, err := newCertificate()
	if err != nil {
		return err
	}
	listener, err := n.options.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("the port for logs: %w", err)
	}
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.serveLog)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("simulated nodes have logs only, not %s", r.URL.Path), http.StatusNotImplemented)
	})
	n.port = kubeletPort{host: host, number: int32(number), server: &http.Server{
		Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}, ErrorLog: stdlog.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return n.ctx },
	}}
	n.working.Go(func() { _ = n.port.server.ServeTLS(listener, "", "") }) // until it is closed
	return nil
}

// newCertificate returns a certificate that nobody has signed: API servers don't verify those of kubelets by default.
func newCertificate() (tls.Certificate, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(100, 0, 0), DNSNames: []string{"simnodes"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}

// enter counts a request, unless the nodes have been stopped.
func (n *Nodes) enter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return false
	}
	n.working.Add(1)
	return true
}

// serveLog responds with a container's log.
func (n *Nodes) serveLog(w http.ResponseWriter, r *http.Request) {
	if !n.enter() {
		return
	}
	defer n.working.Done()
	name, pod := r.PathValue("container"), r.PathValue("namespace")+"/"+r.PathValue("pod")
	query, err := parseLogQuery(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	state, c, err := n.find(pod, name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	log, waiting := c.log, c.state.Waiting
	if query.previous {
		log = c.previous
	}
	state.mu.Unlock()
	switch {
	case log == nil && query.previous:
		http.Error(w, fmt.Sprintf("previous terminated container %q in pod %q not found", name, pod), http.StatusBadRequest)
		return
	case log == nil:
		reason := "PodInitializing"
		if waiting != nil {
			reason = waiting.Reason
		}
		http.Error(w, fmt.Sprintf("container %q in pod %q is waiting to start: %s", name, pod, reason), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	copyLog(r.Context(), w, log, query)
}
