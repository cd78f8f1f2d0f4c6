package flood

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	// memoryLimit is the maximum peak memory of the process in MiB.
	memoryLimit = 512
	// memoryGuard is the size in MiB at which the server is killed, to protect the machine.
	memoryGuard = 4096
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
	// Resets the kernel's record of the peak memory.
	harness.Must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Pid()), []byte("5"), 0))
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { s.guard(ctx, t) })
	stranger := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{TLSClientConfig: s.anonymous.Clone(), DisableKeepAlives: true}}
	known := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{TLSClientConfig: s.administrator.Clone(), ForceAttemptHTTP2: true}}
	watching.Go(func() { probe(ctx, t, stranger, s.URL+"/livez") })
	watching.Go(func() { probe(ctx, t, known, s.URL+"/api/v1/namespaces/default") })
	attack(ctx)
	cancel()
	watching.Wait()
	known.CloseIdleConnections()
	peak, err := s.memory("VmHWM")
	harness.Must(t, err)
	if peak > memoryLimit {
		t.Errorf("the server used %d MiB, and may use %d", peak, memoryLimit)
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

// guard kills the server if it becomes so large that it endangers the machine.
func (s *target) guard(ctx context.Context, t *testing.T) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Ended():
			return
		case <-time.After(probeInterval):
		}
		if size, err := s.memory("VmRSS"); err == nil && size > memoryGuard {
			t.Errorf("the server was killed at %d MiB", size)
			_ = syscall.Kill(s.Pid(), syscall.SIGKILL) // it may have just ended
			return
		}
	}
}

// memory reads a figure of /proc/PID/status, in MiB.
func (s *target) memory(name string) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			var kib int
			_, err := fmt.Sscanf(rest, "%d kB", &kib)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s", name)
}
