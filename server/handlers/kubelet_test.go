package handlers_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"

	"github.com/sqube/sqube/test/harness"
)

// nodeAddress is the kubelet's address in its Node. The server does not proxy to loopback addresses.
const nodeAddress = "192.0.2.1"

// newKubelet starts a server that responds with the method and path of the request, and upgrades the connection if requested.
// Clients with the returned configuration reach it at any address.
func newKubelet(t *testing.T) kubeletclient.KubeletClientConfig {
	t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := fmt.Sprintf("%s %s", r.Method, r.URL.Path)
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, answer) //nolint:errcheck // the client detects a missing body
			return
		}
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n%s", answer)
	}))
	t.Cleanup(kubelet.Close)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, kubelet.Listener.Addr().String())
	}
	return kubeletclient.KubeletClientConfig{
		PreferredAddressTypes: []string{string(corev1.NodeInternalIP)},
		Lookup:                func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return dial, nil },
	}
}

// addNode registers the kubelet's Node and a Pod on it.
func addNode(t *testing.T, a api) {
	t.Helper()
	ctx := t.Context()
	node, err := a.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	if _, err := a.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := a.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestKubeletIsReached checks that requests for paths that a kubelet serves are proxied to the Pod's Node, with the rest of the
// path.
func TestKubeletIsReached(t *testing.T) {
	a := newAPI(t, options{kubelet: newKubelet(t)})
	addNode(t, a)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)

	const upgrade = "SPDY/3.1"
	for _, test := range []struct{ method, path, upgrade, want string }{
		{"GET", "/api/v1/namespaces/default/pods/p/log", "", "GET /containerLogs/default/p/c"},
		{"GET", "/api/v1/nodes/n/proxy/metrics", "", "GET /metrics"},
		{"POST", "/api/v1/nodes/n/proxy/run/x", "", "POST /run/x"},
		{"GET", "/api/v1/nodes/n/proxy/a//b/", "", "GET /a/b/"},
		{"GET", "/api/v1/nodes/n/proxy/", "", "GET /"},
		{"POST", "/api/v1/namespaces/default/pods/p/exec?command=ls&stdout=true", upgrade, "POST /exec/default/p/c"},
		{"POST", "/api/v1/namespaces/default/pods/p/attach?stdout=true", upgrade, "POST /attach/default/p/c"},
		{"POST", "/api/v1/namespaces/default/pods/p/portforward", upgrade, "POST /portForward/default/p"},
	} {
		t.Run(test.path, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), test.method, server.URL+test.path, nil)
			harness.Must(t, err)
			if test.upgrade != "" {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", test.upgrade)
			}
			answer, err := http.DefaultClient.Do(r)
			harness.Must(t, err)
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			harness.Must(t, err)
			if string(body) != test.want {
				t.Errorf("%d %s", answer.StatusCode, body)
			}
		})
	}
}
