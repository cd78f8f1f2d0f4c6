package access

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/test/harness"
)

func TestVerifiedCertificatesAreCached(t *testing.T) {
	asked := 0
	c := newCertificates(authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		asked++
		name := string(r.TLS.PeerCertificates[0].Raw)
		if other := r.Header.Get("X-Remote-User"); other != "" {
			name = other
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "nobody", nil
	}), func() []string { return []string{"X-Remote-User"} })

	request := func(cert string, notAfter time.Time, header ...string) *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte(cert), NotAfter: notAfter}}}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	later := time.Now().Add(time.Hour)
	for _, step := range []struct {
		what  string
		r     *http.Request
		want  string
		asked int
	}{
		{"the first request", request("jane", later), "jane", 1},
		{"the same certificate again", request("jane", later), "jane", 1},
		{"another certificate", request("joe", later), "joe", 2},
		{"a front proxy's user", request("jane", later, "X-Remote-User", "bob"), "bob", 3},
		{"not the front proxy's user afterwards", request("jane", later), "jane", 3},
		{"a token with the certificate", request("jane", later, "Authorization", "Bearer x"), "jane", 4},
		{"an expired certificate", request("old", time.Now().Add(-time.Second)), "old", 5},
		{"an expired certificate again, which is not cached", request("old", time.Now().Add(-time.Second)), "old", 6},
		{"a rejected certificate", request("nobody", later), "", 7},
		{"a rejected certificate again", request("nobody", later), "", 8},
	} {
		response, ok, err := c.AuthenticateRequest(step.r)
		harness.Must(t, err)
		got := ""
		if ok {
			got = response.User.GetName()
		}
		if got != step.want || asked != step.asked {
			t.Errorf("%s: user %q after %d calls, want %q after %d", step.what, got, asked, step.want, step.asked)
		}
	}
}
