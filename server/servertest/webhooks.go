package servertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/keyutil"
)

// WebhookServer is where a test serves its webhooks, with the fields of controller-runtime's webhook.Options.
type WebhookServer struct {
	Host    string
	Port    int
	CertDir string // with tls.crt and tls.key, which the API server trusts

	trust []byte // the certificate in PEM
}

func (w *WebhookServer) address() string { return net.JoinHostPort(w.Host, strconv.Itoa(w.Port)) }

// url returns the URL of a webhook with the path of a Service reference.
func (w *WebhookServer) url(path *string) *string {
	text := "https://" + w.address()
	if path != nil {
		text += *path
	}
	return &text
}

// prepareWebhooks chooses the address of webhooks, if there are any, and sets it for the conversions in definitions.
func (s *Server) prepareWebhooks(wanted bool, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	var clients []*apiextensionsv1.WebhookClientConfig
	for _, definition := range definitions {
		if c := definition.Spec.Conversion; c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil && c.Webhook.ClientConfig.Service != nil {
			clients = append(clients, c.Webhook.ClientConfig)
		}
	}
	if !wanted && len(clients) == 0 {
		return nil
	}
	w, err := newWebhookServer(filepath.Join(s.folder, "webhooks"))
	if err != nil {
		return fmt.Errorf("prepare the server of webhooks: %w", err)
	}
	s.Webhook = *w
	for _, c := range clients {
		c.URL, c.CABundle, c.Service = w.url(c.Service.Path), w.trust, nil
	}
	return nil
}

// unusedPort returns a port of 127.0.0.1 on which nothing listens. It is outside the range from which kernels choose, 32768 to
// 60999, so that no connection gets it before the test listens.
func unusedPort() (port int, err error) {
	for range 100 {
		port = 20000 + 2*mathrand.IntN(5000)
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, err
}

func newWebhookServer(folder string) (*WebhookServer, error) {
	port, err := unusedPort()
	if err != nil {
		return nil, err
	}
	w := &WebhookServer{Host: "127.0.0.1", Port: port, CertDir: folder}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "webhooks"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	w.trust = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err == nil {
		err = os.Mkdir(folder, 0o700)
	}
	for name, content := range map[string][]byte{"tls.crt": w.trust, "tls.key": private} {
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), content, 0o600)
		}
	}
	return w, err
}

// installWebhooks creates the webhook configurations among objects.
func (s *Server) installWebhooks(ctx context.Context, objects []*unstructured.Unstructured) error {
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	for _, object := range objects {
		switch object.GroupVersionKind() {
		case admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"):
			configuration := &admissionv1.ValidatingWebhookConfiguration{}
			if err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, configuration); err == nil {
				for i := range configuration.Webhooks {
					s.redirect(&configuration.Webhooks[i].ClientConfig)
				}
				err = apply(ctx, client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), configuration)
			}
		case admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"):
			configuration := &admissionv1.MutatingWebhookConfiguration{}
			if err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, configuration); err == nil {
				for i := range configuration.Webhooks {
					s.redirect(&configuration.Webhooks[i].ClientConfig)
				}
				err = apply(ctx, client.AdmissionregistrationV1().MutatingWebhookConfigurations(), configuration)
			}
		}
		if err != nil {
			return fmt.Errorf("install the %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// redirect replaces a webhook's Service with the address of the test's webhooks.
func (s *Server) redirect(c *admissionv1.WebhookClientConfig) {
	if c.Service != nil {
		c.URL, c.CABundle, c.Service = s.Webhook.url(c.Service.Path), s.Webhook.trust, nil
	}
}

// slowListener accepts connections whose bytes come late.
type slowListener struct {
	net.Listener
	faults *faults
	n      atomic.Int64
}

// Accept implements net.Listener.
func (l *slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("connection %d to %v", l.n.Add(1), l.Addr())
	return &slowConn{Conn: conn, faults: l.faults, name: name, draws: l.faults.draws("server", name)}, nil
}

type slowConn struct {
	net.Conn
	faults *faults
	name   string
	draws  *mathrand.Rand // for one reader at a time
}

// Read implements net.Conn.
func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if delay := min(c.faults.wait(c.draws, SlowWebhooks), slowestWebhook); n > 0 {
		if delay >= logged {
			c.faults.note("%s is %v late", c.name, delay.Round(time.Millisecond))
		}
		time.Sleep(delay)
	}
	return n, err
}
