package serve

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// kubelet is a fake kubelet that records its requests.
type kubelet struct {
	port  int
	asked chan *http.Request
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{asked: make(chan *http.Request, 1)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/exec/") {
			stream(t, w)
			return
		}
		k.asked <- r
		io.WriteString(w, "hello")
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	harness.Must(t, err)
	k.port, err = strconv.Atoi(port)
	harness.Must(t, err)
	return k
}

// logs reads the log of a pod on a node of that kubelet, which is reachable only at the node's external address, through a
// server that presents the certificate.
func (k *kubelet) logs(t *testing.T, s *sqube.Server, want *x509.Certificate) {
	t.Helper()
	c := client(t, s.Kubeconfig).CoreV1()
	node, err := c.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "nowhere.invalid"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeExternalIP, Address: "127.0.0.1"},
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(k.port)
	_, err = c.Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	harness.Must(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	harness.Retry(t, "a pod can be created, once its service account exists", func() error {
		_, err := c.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	text, err := c.Pods("default").GetLogs("pod", &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil || string(text) != "hello" {
		t.Fatalf("the log is %q, error %v", text, err)
	}
	asked := <-k.asked
	if certs := asked.TLS.PeerCertificates; len(certs) == 0 || !certs[0].Equal(want) {
		t.Error("a different client certificate is presented")
	}
	if asked.URL.Path != "/containerLogs/default/pod/c" {
		t.Errorf("the server requests %s", asked.URL)
	}
}

// streamed is how many bytes the kubelet sends over a connection into a pod.
const streamed = 12000

// stream upgrades the connection to another protocol.
func stream(t *testing.T, w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"+strings.Repeat("x", streamed)); err != nil {
		t.Error(err)
	}
}

// throttles reads what the kubelet streams through a server with a limit of bytesPerSecond.
func throttles(t *testing.T, s *sqube.Server, bytesPerSecond int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/api/v1/namespaces/default/pods/pod/exec?command=ls&stdout=true", nil)
	harness.Must(t, err)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "SPDY/3.1")
	start := time.Now()
	response, err := httpClient(t, s.Kubeconfig, "HTTP/1.1").Do(request)
	harness.Must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response.Status)
	}
	if _, err := io.CopyN(io.Discard, response.Body, streamed); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < streamed*time.Second/time.Duration(bytesPerSecond)/2 {
		t.Errorf("%d bytes arrived within %s", streamed, took)
	}
}
