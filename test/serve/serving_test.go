package serve

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestServingFlags connects to a server whose port has non-default flags.
func TestServingFlags(t *testing.T) {
	t.Parallel()
	named, more, kubelet := newPair(t, "api.example.com"), newPair(t, "other.example.com"), newPair(t, "sqube")
	node := newKubelet(t)
	s := serve(t, []string{
		"--tls-min-version=VersionTLS12", "--tls-curve-preferences=23",
		"--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"--tls-sni-cert-key=" + named.flag(), "--tls-sni-cert-key=" + more.flag() + ":*.more.example.com",
		"--strict-transport-security-directives=max-age=31536000,includeSubDomains", "--http2-max-streams-per-connection=77",
		"--goaway-chance=0.02", "--external-hostname=api.example.com", "--kubernetes-service-node-port=30443", "--permit-port-sharing",
		"--max-connection-bytes-per-sec=10000", "--delete-collection-workers=3", "--vmodule=httplog=3",
		"--kubelet-client-certificate", kubelet.cert, "--kubelet-client-key", kubelet.key, "--kubelet-preferred-address-types=ExternalIP",
	})
	t.Run("versions, ciphers and key exchanges", func(t *testing.T) {
		for what, config := range map[string]*tls.Config{
			"TLS 1.1":                {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, CurvePreferences: []tls.CurveID{tls.CurveP256}},
			"another cipher":         {MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}},
			"another key exchange":   {CurvePreferences: []tls.CurveID{tls.X25519}},
			"and over TLS 1.2 alone": {MaxVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.X25519}},
		} {
			if _, err := shown(s, config); err == nil {
				t.Errorf("%s is accepted", what)
			}
		}
		if _, err := shown(s, &tls.Config{MaxVersion: tls.VersionTLS12}); err != nil {
			t.Errorf("a client with allowed parameters: %v", err)
		}
	})
	t.Run("certificates by name", func(t *testing.T) {
		for name, want := range map[string]pair{"api.example.com": named, "a.more.example.com": more} {
			if got, err := shown(s, &tls.Config{ServerName: name}); err != nil || !got.Equal(want.read(t)) {
				t.Errorf("%s: a different certificate is presented, error %v", name, err)
			}
		}
		for _, name := range []string{"", "localhost"} {
			if got, err := shown(s, &tls.Config{ServerName: name}); err != nil || got.Subject.CommonName != "kube-apiserver" {
				t.Errorf("%q: a certificate of %v is presented, error %v", name, got.Subject, err)
			}
		}
		named.renew(t, "api.example.com")
		harness.Retry(t, "a changed certificate is presented", func() error {
			if got, err := shown(s, &tls.Config{ServerName: "api.example.com"}); err != nil || !got.Equal(named.read(t)) {
				return fmt.Errorf("the former one is presented, error %v", err)
			}
			return nil
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		if got := settings(t, s)[http2.SettingMaxConcurrentStreams]; got != 77 {
			t.Errorf("%d streams", got)
		}
		c := httpClient(t, s.Kubeconfig, "HTTP/2.0") // connections of anonymous clients are closed in any case
		connections, last := 0, ""
		for requests := 0; connections < 3; requests++ { // two in a hundred requests close their connection
			if requests > 5000 {
				t.Fatalf("%d requests over %d connections", requests, connections)
			}
			trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
				if address := info.Conn.LocalAddr().String(); address != last {
					connections, last = connections+1, address
				}
			}}
			request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, s.URL+"/livez", nil)
			harness.Must(t, err)
			response, err := c.Do(request)
			harness.Must(t, err)
			harness.Must(t, response.Body.Close())
			if got := response.Header.Get("Strict-Transport-Security"); got != "max-age=31536000; includeSubDomains" {
				t.Fatalf("Strict-Transport-Security: %q", got)
			}
		}
	})
	t.Run("names and ports in the API", func(t *testing.T) {
		port := strconv.Itoa(s.Port)
		c := client(t, s.Kubeconfig)
		service, err := c.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		harness.Must(t, err)
		if service.Spec.Type != corev1.ServiceTypeNodePort || service.Spec.Ports[0].NodePort != 30443 {
			t.Errorf("the Service kubernetes: %s", service.Spec.String())
		}
		for path, want := range map[string]string{
			"/api": `"serverAddress":"api.example.com:` + port + `"`, "/apis": `"groups"`,
			"/.well-known/openid-configuration": `"jwks_uri":"https://api.example.com:` + port + `/openid/v1/jwks"`,
		} {
			got, err := c.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(t.Context())
			compact := new(bytes.Buffer)
			if err := errors.Join(err, json.Compact(compact, got)); err != nil || !strings.Contains(compact.String(), want) {
				t.Errorf("%s has no %s: %v\n%s", path, want, err, got)
			}
		}
	})
	t.Run("kubelets", func(t *testing.T) {
		node.logs(t, s, kubelet.read(t))
		throttles(t, s, 10000)
	})
	t.Run("a collection is deleted in parallel", func(t *testing.T) { deletesAtOnce(t, client(t, s.Kubeconfig), 3) })
	t.Run("one file of the libraries logs more", func(t *testing.T) {
		if log := s.Log(t); !strings.Contains(log, `level=DEBUG msg=HTTP verb=GET`) {
			t.Error("httplog.go logs no request")
		}
	})
	t.Run("a port for two", func(t *testing.T) {
		certs := t.TempDir()
		inFolder := pair{filepath.Join(certs, "apiserver.crt"), filepath.Join(certs, "apiserver.key")}
		inFolder.renew(t, "folder.example.com")
		other := sqube.Launch(t, sqube.Options{Port: s.Port, Args: []string{"--permit-port-sharing", "--disable-http2-serving", "--cert-dir", certs}})
		other.Logged(t, "msg=ready", 1)
		s.Stop(t)
		insecure.CloseIdleConnections()
		response, err := insecure.Get(s.URL + "/version")
		harness.Must(t, err)
		harness.Must(t, response.Body.Close())
		if response.ProtoMajor != 1 || response.Header.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s with headers %v", response.Proto, response.Header)
		}
		if got, err := shown(s, &tls.Config{}); err != nil || !got.Equal(inFolder.read(t)) {
			t.Errorf("the certificate of %v is presented instead of the one in --cert-dir, error %v", got.Subject, err)
		}
	})
}

// pair is the files of a certificate and its key.
type pair struct{ cert, key string }

func newPair(t *testing.T, name string) pair {
	t.Helper()
	dir := t.TempDir()
	p := pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	p.renew(t, name)
	return p
}

func (p pair) flag() string { return p.cert + "," + p.key }

// renew puts another certificate into the files.
func (p pair) renew(t *testing.T, name string) {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	harness.Must(t, err)
	harness.Must(t, errors.Join(os.WriteFile(p.key, key, 0o600), os.WriteFile(p.cert, cert, 0o600)))
}

func (p pair) read(t *testing.T) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(readFile(t, p.cert))
	cert, err := x509.ParseCertificate(block.Bytes)
	harness.Must(t, err)
	return cert
}

// dial connects to a server as a client with the configuration, without verifying certificates.
func dial(s *sqube.Server, config *tls.Config) (*tls.Conn, error) {
	address, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	config.InsecureSkipVerify = true
	return tls.DialWithDialer(&net.Dialer{Timeout: harness.Patience}, "tcp", address.Host, config)
}

// shown returns the certificate that a server presents to a client.
func shown(s *sqube.Server, config *tls.Config) (*x509.Certificate, error) {
	conn, err := dial(s, config)
	if err != nil {
		return &x509.Certificate{}, err
	}
	return conn.ConnectionState().PeerCertificates[0], conn.Close()
}

// settings returns the SETTINGS that a server sends first on an HTTP/2 connection.
func settings(t *testing.T, s *sqube.Server) map[http2.SettingID]uint32 {
	t.Helper()
	conn, err := dial(s, &tls.Config{NextProtos: []string{"h2"}})
	harness.Must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(http2.ClientPreface))
	harness.Must(t, err)
	framer := http2.NewFramer(conn, conn)
	harness.Must(t, framer.WriteSettings())
	frame, err := framer.ReadFrame()
	harness.Must(t, err)
	found := map[http2.SettingID]uint32{}
	harness.Must(t, frame.(*http2.SettingsFrame).ForeachSetting(func(s http2.Setting) error {
		found[s.ID] = s.Val
		return nil
	}))
	return found
}
