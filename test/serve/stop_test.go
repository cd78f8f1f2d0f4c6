package serve

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

// httpClient returns a client with the administrator's certificate, of one protocol, "HTTP/1.1" or "HTTP/2.0".
func httpClient(t *testing.T, kubeconfig, protocol string) *http.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	harness.Must(t, err)
	trust, err := rest.TLSConfigFor(config)
	harness.Must(t, err)
	transport := &http.Transport{TLSClientConfig: trust, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestTerminate sends SIGTERM while a request is being sent and watches run.
func TestTerminate(t *testing.T) {
	t.Parallel()
	for protocol, database := range map[string]func(testing.TB) string{"HTTP/1.1": harness.SQLite, "HTTP/2.0": harness.Postgres} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			datastore := []string{"--datastore", database(t)}
			s := serve(t, datastore)
			c := httpClient(t, s.Kubeconfig, protocol)

			watch, err := c.Get(s.URL + "/api/v1/namespaces?watch=true")
			harness.Must(t, err)
			defer watch.Body.Close()
			events := bufio.NewReader(watch.Body)
			if _, err := events.ReadString('\n'); err != nil || watch.Proto != protocol {
				t.Fatalf("the watch does not begin: %s, %v", watch.Proto, err)
			}
			post := startPost(t, c, s.URL+"/api/v1/namespaces/default/configmaps", `{"kind":"ConfigMap","apiVersion":"v1",`)

			harness.Must(t, s.Signal(syscall.SIGTERM))
			// The rest of the watch is complete events, then its end.
			for {
				line, err := events.ReadString('\n')
				if errors.Is(err, io.EOF) && line == "" {
					break
				}
				if err != nil {
					t.Fatalf("the watch ends with %q, %v", line, err)
				}
			}
			harness.Retry(t, "no new requests are accepted", func() error {
				if response, err := newConnection().Get(s.URL + "/readyz"); err == nil {
					response.Body.Close()
					return fmt.Errorf("/readyz returns %s", response.Status)
				}
				return nil
			})
			if got := post.finish(t, `"metadata":{"name":"late"}}`); got != http.StatusCreated {
				t.Errorf("the request that was running got %d", got)
			}
			if code := s.Code(t); code != 0 {
				t.Errorf("ended with code %d", code)
			}
			if text := s.Log(t); !strings.Contains(text, "msg=stopped") || strings.Contains(text, "level=ERROR") {
				t.Errorf("the log:\n%s", text)
			}

			again := serveIn(t, s.DataDir, datastore)
			if _, err := client(t, again.Kubeconfig).CoreV1().ConfigMaps("default").Get(t.Context(), "late", metav1.GetOptions{}); err != nil {
				t.Errorf("the last created object is lost: %v", err)
			}
		})
	}
}

// running is a request whose body is not yet completely sent.
type running struct {
	body   *io.PipeWriter
	answer chan *http.Response
	failed chan error
}

// startPost sends the beginning of a request, and waits until the server reads its body.
func startPost(t *testing.T, c *http.Client, url, beginning string) running {
	t.Helper()
	reader, writer := io.Pipe()
	r := running{writer, make(chan *http.Response, 1), make(chan error, 1)}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, reader)
	harness.Must(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue") // so that the body is sent once a handler reads it
	c.Transport.(*http.Transport).ExpectContinueTimeout = harness.Patience
	go func() {
		response, err := c.Do(request)
		if err != nil {
			r.failed <- err
			return
		}
		r.answer <- response
	}()
	if _, err := io.WriteString(writer, beginning); err != nil {
		t.Fatal(err)
	}
	return r
}

// finish sends the rest and returns the status code of the response.
func (r running) finish(t *testing.T, rest string) int {
	t.Helper()
	_, err := io.WriteString(r.body, rest)
	harness.Must(t, errors.Join(err, r.body.Close()))
	select {
	case response := <-r.answer:
		defer response.Body.Close()
		if _, err := io.ReadAll(response.Body); err != nil {
			t.Error(err)
		}
		return response.StatusCode
	case err := <-r.failed:
		t.Fatal(err)
		return 0
	}
}

// newConnection returns a client that has no connection yet.
func newConnection() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
}

// TestSecondSignal sends SIGINT, and SIGTERM while a request keeps the server from exiting.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	startPost(t, httpClient(t, s.Kubeconfig, "HTTP/1.1"), s.URL+"/api/v1/namespaces/default/configmaps", `{`)
	harness.Must(t, s.Signal(syscall.SIGINT))
	s.Logged(t, "stopping; a second signal ends the process at once", 1)
	if !s.Runs() {
		t.Error("ended with a request running")
	}
	harness.Must(t, s.Signal(syscall.SIGTERM))
	if code := s.Code(t); code != 1 {
		t.Errorf("ended with code %d", code)
	}
}

// TestGracePeriod stops a server during a request that never ends.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--shutdown-grace-period", "2s"}) // each part of the server must stop within that, too
	startPost(t, httpClient(t, s.Kubeconfig, "HTTP/1.1"), s.URL+"/api/v1/namespaces/default/configmaps", `{`)
	settle(t, s)
	s.Stop(t)
	if text := s.Log(t); !strings.Contains(text, "requests were still running at the end of --shutdown-grace-period and were cut off") {
		t.Errorf("the log:\n%s", text)
	}
}

// TestPartThatHangs has an audit webhook that accepts events and never responds. The server exits anyway, with an error that
// names the audit log.
func TestPartThatHangs(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	webhook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer webhook.Close()
	defer close(over)
	dir := t.TempDir()
	config, policy := filepath.Join(dir, "webhook.kubeconfig"), filepath.Join(dir, "policy.yaml")
	for path, text := range map[string]string{
		config: `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "` + webhook.URL + `"}}]}`,
		policy: `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}`,
	} {
		harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	s := serve(t, []string{"--audit-webhook-config-file", config, "--audit-policy-file", policy, "--shutdown-grace-period", "2s"})
	settle(t, s)
	harness.Must(t, s.Signal(syscall.SIGTERM))
	if code := s.Code(t); code != 1 {
		t.Errorf("ended with code %d", code)
	}
	if text := s.Log(t); !strings.Contains(text, "sqube: did not stop within --shutdown-grace-period: audit log\n") {
		t.Errorf("it does not report what hangs:\n%s", text)
	}
}

// TestShutdownDelay checks that the server announces its shutdown to load balancers while it still serves, and that it
// ends after the delay. Meanwhile it gets its first ID token, and asks the issuer for its keys.
func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	var issuer *httptest.Server
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"id_token_signing_alg_values_supported":["RS256"]}`, issuer.URL, issuer.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"keys":[]}`)
	})
	issuer = httptest.NewTLSServer(mux)
	defer issuer.Close()
	authority := filepath.Join(t.TempDir(), "issuer.crt")
	harness.Must(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw}), 0o600))

	s := serve(t, []string{
		"--shutdown-delay-duration=1h", // longer than the requests take on any machine
		"--oidc-issuer-url", issuer.URL, "--oidc-client-id=sqube", "--oidc-ca-file", authority,
	})
	harness.Must(t, s.Signal(syscall.SIGTERM))
	harness.Eventually(t, "/readyz fails", func() bool {
		response, err := newConnection().Get(s.URL + "/readyz")
		harness.Must(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode == http.StatusOK {
			return false
		}
		if response.StatusCode != http.StatusInternalServerError || !strings.Contains(string(text), "[-]shutdown failed") {
			t.Errorf("/readyz returns %s\n%s", response.Status, text)
		}
		return true
	})
	if response, err := newConnection().Get(s.URL + "/livez"); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("/livez during the delay: %v, %v", response, err)
	}
	if _, err := client(t, s.Kubeconfig).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a list during the delay: %v", err)
	}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	claims := fmt.Sprintf(`{"iss":%q,"aud":"sqube","sub":"ann","exp":%d}`, issuer.URL, time.Now().Add(time.Hour).Unix())
	token := encode(`{"alg":"RS256"}`) + "." + encode(claims) + "." + encode("not a signature")
	harness.Eventually(t, "the issuer is asked for its keys", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api", nil)
		harness.Must(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := newConnection().Do(request)
		harness.Must(t, err)
		harness.Must(t, response.Body.Close())
		return asked.Load() > 0
	})

	brief := serve(t, []string{"--shutdown-delay-duration", "1s"})
	began := time.Now()
	brief.Stop(t)
	if took := time.Since(began); took < time.Second {
		t.Errorf("ended after %s", took)
	}
}
