package loopback

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/harness"
)

// secure returns a TLS client of the transport. The server has a certificate for api.test. change changes the client's
// configuration.
func secure(t *testing.T, tr *Transport, change func(*rest.Config)) *http.Client {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("api.test", nil, nil)
	harness.Must(t, err)
	config := tr.SecureConfig(func() (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(certificate, key)
		return &pair, err
	}, certificate)
	change(config)
	client, err := rest.HTTPClientFor(config)
	harness.Must(t, err)
	return client
}

func TestSecureRequestIsThatOfTheLoopbackUser(t *testing.T) {
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		response, ok, err := Authenticator.AuthenticateRequest(r)
		if !ok || err != nil {
			t.Errorf("the request is not authenticated: %v", err)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		io.WriteString(w, strings.Join([]string{response.User.GetName(), r.RemoteAddr, string(body)}, " ")) //nolint:errcheck // the client detects a missing body
	})
	client := secure(t, tr, func(c *rest.Config) {
		// Like webhooks: another CA, which did not sign the certificate.
		other, _, err := cert.GenerateSelfSignedCertKey("other.test", nil, nil)
		harness.Must(t, err)
		c.CAData = append(c.CAData, other...)
		c.NextProtos = []string{"http/1.1"}
	})
	for range 3 {
		response, err := client.Post("https://api.test:443/x", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
		harness.Must(t, err)
		text, err := io.ReadAll(response.Body)
		if want := "system:apiserver " + remoteAddr + " xxx"; err != nil || !strings.HasPrefix(string(text), want) || len(text) != len(want)-3+1<<20 {
			t.Errorf("the response is %.100q, %v", text, err)
		}
		response.Body.Close()
	}
}

func TestSecureClientVerifiesTheName(t *testing.T) {
	tr := serving(t, func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	response, err := secure(t, tr, func(*rest.Config) {}).Get("https://elsewhere.test/")
	if err == nil {
		response.Body.Close()
	}
	if wrong := (*tls.CertificateVerificationError)(nil); !errors.As(err, &wrong) {
		t.Errorf("got %v, want a CertificateVerificationError", err)
	}
}

func TestSecureEndsWithTheTransport(t *testing.T) {
	tr := New(context.Background())
	entered, left := make(chan struct{}), make(chan struct{})
	tr.SetHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	}))
	client := secure(t, tr, func(*rest.Config) {})
	go func() {
		if response, err := client.Get("https://api.test/"); err == nil {
			response.Body.Close()
		}
	}()
	await(t, "the request", entered)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	harness.Must(t, tr.Shutdown(ctx))
	await(t, "the handler's end", left)
	for {
		response, err := client.Get("https://api.test/")
		if errors.Is(err, ErrShutdown) {
			return
		}
		if err == nil || ctx.Err() != nil { // the client may still try the connection that has ended
			t.Fatalf("after shutdown, a request returned %v, %v", response, err)
		}
	}
}

// whoami responds with the caller's name and groups according to Authenticator, or 401.
func whoami(w http.ResponseWriter, r *http.Request) {
	resp, ok, err := Authenticator.AuthenticateRequest(r)
	if err != nil || !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("X-User", resp.User.GetName())
	w.Header()["X-Group"] = resp.User.GetGroups()
}

func TestInProcessCallerIsTheLoopbackUser(t *testing.T) {
	resp := get(t, context.Background(), serving(t, whoami), "/")
	if got := resp.Header.Get("X-User"); got != "system:apiserver" {
		t.Errorf("user %q", got)
	}
	if want := []string{user.SystemPrivilegedGroup, user.AllAuthenticated}; !slices.Equal(resp.Header["X-Group"], want) {
		t.Errorf("groups %v, want %v", resp.Header["X-Group"], want)
	}
}

// TestUsersOfOneTransport has clients of different users on one transport at the same time.
func TestUsersOfOneTransport(t *testing.T) {
	transport := serving(t, whoami)
	for _, want := range [][]string{
		{user.APIServerUser, user.SystemPrivilegedGroup, user.AllAuthenticated},
		{"jane", "a", "b", user.AllAuthenticated},
		{"joe", user.AllAuthenticated},
	} {
		t.Run(want[0], func(t *testing.T) {
			t.Parallel()
			config := transport.Config()
			if want[0] != user.APIServerUser {
				config = transport.ConfigOf(want[0], want[1:len(want)-1]...)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
			harness.Must(t, err)
			resp, err := config.Transport.RoundTrip(req)
			harness.Must(t, err)
			if got := append(resp.Header["X-User"], resp.Header["X-Group"]...); !slices.Equal(got, want) {
				t.Errorf("the request is of %q, want %q", got, want)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNetworkCallerCannotForge(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(whoami))
	defer server.Close()
	req, err := http.NewRequestWithContext(withIdentity(context.Background(), &loopbackUser), http.MethodGet, server.URL, nil)
	harness.Must(t, err)
	req.Host = "loopback.invalid"
	req.Header.Set("X-Remote-User", "system:apiserver")
	req.Header.Set("X-Remote-Group", user.SystemPrivilegedGroup)
	req.Header.Set("Authorization", "Bearer system:apiserver")
	resp, err := server.Client().Do(req)
	harness.Must(t, err)
	harness.Must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a request from a socket was authenticated as %q", resp.Header.Get("X-User"))
	}
}

func TestClientGoListsAndWatches(t *testing.T) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "7"},
	}
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if accepted := r.Header.Get("Accept"); !strings.HasPrefix(accepted, runtime.ContentTypeProtobuf) {
			t.Errorf("the client prefers %q, which takes three times the CPU of protobuf", accepted)
		}
		if r.URL.Query().Get("watch") != "true" {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&corev1.PodList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*pod},
			}, w); err != nil {
				t.Error(err)
			}
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.(http.Flusher).Flush()
		if _, err := w.Write([]byte(`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}}`)); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	clients, err := kubernetes.NewForConfig(tr.Config())
	harness.Must(t, err)
	list, err := clients.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "p" {
		t.Fatalf("list: %v, %v", list, err)
	}
	w, err := clients.CoreV1().Pods("default").Watch(context.Background(), metav1.ListOptions{})
	harness.Must(t, err)
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Fatalf("got %+v", e)
	}
	w.Stop()
}
