package loopback

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// secure returns a TLS client of the transport. The server has a certificate for api.test. change changes the client's
// configuration.
func secure(t *testing.T, tr *Transport, change func(*rest.Config)) *http.Client {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("api.test", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	config := tr.SecureConfig(func() (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(certificate, key)
		return &pair, err
	}, certificate)
	change(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		c.CAData = append(c.CAData, other...)
		c.NextProtos = []string{"http/1.1"}
	})
	for range 3 {
		response, err := client.Post("https://api.test:443/x", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
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
	if err := tr.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
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
