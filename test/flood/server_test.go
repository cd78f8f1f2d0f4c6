package flood

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	// memoryLimit is the maximum peak memory of the process in bytes.
	memoryLimit = 512 << 20
	// answerTimeout limits a response on a machine with two cores, shared with the attack and other tests. A successful attack
	// blocks others for minutes.
	answerTimeout = harness.Patience
	// probeInterval is how often a well-behaved client sends a request.
	probeInterval = 100 * time.Millisecond
)

// target is a server under attack.
type target struct {
	*sqube.Server
	address string
	config  *rest.Config
	// Connections without a client certificate, and with that of the administrator.
	anonymous, administrator *tls.Config
}

func startTarget(t *testing.T, args ...string) *target {
	t.Helper()
	return startTargetWith(t, sqube.Options{Datastore: harness.SQLite(t), Args: args})
}

func startTargetWith(t *testing.T, o sqube.Options) *target {
	t.Helper()
	s := sqube.Start(t, o)
	config := s.Config(t)
	trusted, err := rest.TLSConfigFor(config)
	harness.Must(t, err)
	if trusted.GetClientCertificate != nil {
		certificate, err := trusted.GetClientCertificate(nil)
		harness.Must(t, err)
		trusted.GetClientCertificate, trusted.Certificates = nil, []tls.Certificate{*certificate}
	}
	trusted.ServerName = "127.0.0.1"
	anonymous := trusted.Clone()
	anonymous.Certificates = nil
	return &target{s, strings.TrimPrefix(s.URL, "https://"), config, anonymous, trusted}
}

// credentials returns TLS configurations in turns: without credentials, and the administrator's.
func (s *target) credentials(i int) *tls.Config {
	if i%2 == 0 {
		return s.anonymous.Clone()
	}
	return s.administrator.Clone()
}

// under runs an attack. Meanwhile two well-behaved clients must be served: one without credentials that connects for each
// request, and the administrator's, which keeps its connection. Afterwards it checks the server's peak memory.
func (s *target) under(t *testing.T, attack func(ctx context.Context)) {
	t.Helper()
	s.ResetPeak(t)
	stop := s.Guard(t)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	stranger := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{TLSClientConfig: s.anonymous.Clone(), DisableKeepAlives: true}}
	known := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{TLSClientConfig: s.administrator.Clone(), ForceAttemptHTTP2: true}}
	watching.Go(func() { probe(ctx, t, stranger, s.URL+"/livez") })
	watching.Go(func() { probe(ctx, t, known, s.URL+"/api/v1/namespaces/default") })
	attack(ctx)
	cancel()
	watching.Wait()
	stop()
	known.CloseIdleConnections()
	if peak := s.Memory(t, "VmHWM"); peak > memoryLimit {
		t.Errorf("the server used %d MiB, and may use %d", peak>>20, memoryLimit>>20)
	}
}

// probe sends requests until ctx ends, and one more. Every request must get a response.
func probe(ctx context.Context, t *testing.T, client *http.Client, url string) {
	for last := false; ; last = ctx.Err() != nil {
		response, err := client.Get(url)
		if err == nil {
			text, _ := io.ReadAll(response.Body) // as far as possible
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", response.Status, text)
			}
		}
		if err != nil {
			t.Errorf("another client meanwhile: %v", err)
			return
		}
		if last {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(probeInterval):
		}
	}
}
