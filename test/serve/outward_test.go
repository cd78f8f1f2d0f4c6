package serve

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/sqube/sqube/test/harness"
)

// TestTracingThroughProxies runs a server that reports spans to a collector, and reaches the collector and a kubelet through
// proxies.
func TestTracingThroughProxies(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		spans := newCollector(t)
		nodes, control := newConnectProxy(t), newConnectProxy(t)
		dir := t.TempDir()
		egress, tracing := filepath.Join(dir, "egress.yaml"), filepath.Join(dir, "tracing.yaml")
		harness.Must(t, os.WriteFile(egress, []byte(`
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: `+nodes.socket+`}}}
- name: controlplane
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: `+control.socket+`}}}
`), 0o600))
		harness.Must(t, os.WriteFile(tracing, []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: `+spans.address+`
`), 0o600))
		kubelet, pair := newKubelet(t), newPair(t, "sqube")
		s := serve(t, []string{"--datastore", engine.Datastore, "--egress-selector-config-file", egress, "--tracing-config-file", tracing,
			"--kubelet-client-certificate", pair.cert, "--kubelet-client-key", pair.key, "--kubelet-preferred-address-types=ExternalIP", "--cache-size=0"}) // reads from memory have no SQL statement
		kubelet.logs(t, s, pair.read(t))
		if want := fmt.Sprintf("127.0.0.1:%d", kubelet.port); !slices.Contains(nodes.seen(), want) {
			t.Errorf("the kubelet at %s was not reached through the proxy, only %v", want, nodes.seen())
		}

		// A request is traced if its client requests that and is an administrator.
		c := httpClient(t, s.Kubeconfig, "HTTP/2.0")
		maps := s.URL + "/api/v1/namespaces/default/configmaps"
		requests := []struct {
			trace, method, url, body string
			below                    []string
		}{
			{strings.Repeat("a", 32), http.MethodPost, maps, `{"metadata":{"name":"traced"}}`, []string{"Create sqlstore", "COMMIT log"}},
			{strings.Repeat("b", 32), http.MethodGet, maps + "/traced", "", []string{"Get sqlstore", "SELECT log"}},
			{strings.Repeat("c", 32), http.MethodGet, maps + "?limit=1", "", []string{"List sqlstore", "SELECT log"}},
			{strings.Repeat("d", 32), http.MethodDelete, maps + "/traced", "", []string{"Delete sqlstore", "COMMIT log"}},
		}
		for _, r := range requests {
			request, err := http.NewRequestWithContext(t.Context(), r.method, r.url, strings.NewReader(r.body))
			harness.Must(t, err)
			request.Header.Set("Traceparent", "00-"+r.trace+"-0123456789abcdef-01")
			request.Header.Set("Content-Type", "application/json")
			response, err := c.Do(request)
			harness.Must(t, err)
			harness.Must(t, response.Body.Close())
			if response.StatusCode >= 300 {
				t.Errorf("%s %s: %s", r.method, r.url, response.Status)
			}
		}
		s.Stop(t) // which sends the remaining spans
		for _, r := range requests {
			if err := spans.path(r.trace, append([]string{r.method + " /api/v1/"}, r.below...)...); err != nil {
				t.Error(err)
			}
		}
		if !slices.Contains(control.seen(), spans.address) {
			t.Errorf("the collector was not reached through the proxy, only %v", control.seen())
		}
		for _, span := range spans.all() {
			if !strings.Contains("abcd", hex.EncodeToString(span.TraceId)[:1]) {
				t.Errorf("%s is traced, but no client requested that", span.Name)
			}
		}
	})
}

// collector is a fake OpenTelemetry collector.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	address string
	mutex   sync.Mutex
	spans   []*tracev1.Span
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	c := &collector{address: listener.Addr().String()}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // until it is stopped
	t.Cleanup(server.Stop)
	return c
}

// Export implements collectorv1.TraceServiceServer.
func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *collector) all() []*tracev1.Span {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.Clone(c.spans)
}

// path looks for a chain of nested spans in a trace with names that have these prefixes. Others may be in between.
func (c *collector) path(trace string, names ...string) error {
	byID := map[string]*tracev1.Span{}
	var said []string
	for _, span := range c.all() {
		if hex.EncodeToString(span.TraceId) == trace {
			byID[string(span.SpanId)] = span
			said = append(said, span.Name)
		}
	}
	for _, span := range byID {
		rest := names
		for at := span; at != nil && len(rest) > 0; at = byID[string(at.ParentSpanId)] {
			if strings.HasPrefix(at.Name, rest[len(rest)-1]) {
				rest = rest[:len(rest)-1]
			}
		}
		if len(rest) == 0 {
			return nil
		}
	}
	return fmt.Errorf("no nested spans %q, only %q", names, said)
}

// connectProxy is an HTTP proxy for CONNECT on a unix socket.
type connectProxy struct {
	socket string
	mutex  sync.Mutex
	hosts  []string
}

func newConnectProxy(t *testing.T) *connectProxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "proxy") // t.TempDir's are longer than the path of a socket may be
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, os.RemoveAll(dir)) })
	p := &connectProxy{socket: filepath.Join(dir, "s")}
	listener, err := net.Listen("unix", p.socket)
	harness.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(p.connect)}
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() { harness.Must(t, server.Close()) })
	return p
}

func (p *connectProxy) connect(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	p.hosts = append(p.hosts, r.Host)
	p.mutex.Unlock()
	there, err := new(net.Dialer).DialContext(r.Context(), "tcp", r.Host)
	if err != nil || r.Method != http.MethodConnect {
		http.Error(w, fmt.Sprint(r.Method, err), http.StatusBadGateway)
		return
	}
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_, err = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	}
	if err != nil {
		there.Close()
		return
	}
	go func() {
		defer there.Close()
		if _, err := io.CopyN(there, buffered, 1); err != nil { // the client starts: it ignores data sent with the response
			return
		}
		go func() { _, _ = io.Copy(here, there); here.Close() }()
		_, _ = io.Copy(there, buffered)
	}()
}

func (p *connectProxy) seen() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Clone(p.hosts)
}
