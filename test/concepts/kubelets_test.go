package concepts

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// kubeletServer answers for a node with the path that it is asked for, and remembers which certificate the API server showed.
type kubeletServer struct {
	*httptest.Server
	shown chan *x509.Certificate
}

// startKubelet starts one on 127.0.0.1 with a certificate of the authority, and makes the promise's node with the Pod "logs".
func (c *cluster) startKubelet(t testing.TB, a *authority) *kubeletServer {
	t.Helper()
	issued := a.issue(t, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pair, err := tls.X509KeyPair(issued.certificate, issued.key)
	if err != nil {
		t.Fatal(err)
	}
	k := &kubeletServer{shown: make(chan *x509.Certificate, 100)}
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.shown <- r.TLS.PeerCertificates[0]
		if _, err := io.WriteString(w, r.URL.Path); err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	k.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}
	k.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are meant to fail
	k.StartTLS()
	t.Cleanup(k.Close)

	nodes := c.global("v1", "nodes")
	c.post(t, nodes, manifest("{metadata: {name: %s}}", c.namespace)).want(t, http.StatusCreated)
	c.deleteLater(t, nodes+"/"+c.namespace)
	c.patch(t, mergePatch, nodes+"/"+c.namespace+"/status", manifest(`{status: {addresses: [{type: InternalIP, address: 127.0.0.1}],
		daemonEndpoints: {kubeletEndpoint: {Port: %d}}}}`, k.Listener.Addr().(*net.TCPAddr).Port)).want(t, http.StatusOK)
	c.serviceAccount(t)
	c.post(t, c.path("v1", "pods"), with(pod("logs"), c.namespace, "spec", "nodeName")).want(t, http.StatusCreated)
	return k
}

var kubeletAccess = promise{"kubelets see a user who may use their API, and nothing else of the cluster", func(t *testing.T, c *cluster) {
	k := c.startKubelet(t, newAuthority(t, "kubelets"))
	if got, want := string(c.get(t, c.path("v1", "pods", "logs", "log")).want(t, http.StatusOK).Body), "/containerLogs/"+c.namespace+"/logs/c"; got != want {
		t.Errorf("the log is %q instead of %q", got, want)
	}
	shown := <-k.shown
	const name = "kube-apiserver-kubelet-client"
	if shown.Subject.CommonName != name || len(shown.Subject.Organization) > 0 {
		t.Errorf("the kubelet saw %s", shown.Subject)
	}
	user := c.as(t, name)
	for _, subresource := range []string{"proxy", "log", "stats", "metrics", "configz", "healthz", "pods"} {
		spec := authorizationv1.SubjectAccessReviewSpec{User: name, Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Version: "v1", Resource: "nodes", Subresource: subresource, Name: c.namespace}}
		if !c.review(t, spec).Allowed {
			t.Errorf("a kubelet would not let it get nodes/%s", subresource)
		}
	}
	user.get(t, c.path("v1", "secrets")).forbidden(t)
	user.post(t, c.path("v1", "pods"), pod("p")).forbidden(t)
	user.post(t, c.global(rbacVersion, "clusterrolebindings"), c.binding("ClusterRoleBinding", "ClusterRole/cluster-admin", "User/"+name)).forbidden(t)
}}

// TestKubeletAuthority uses kube-apiserver's flag --kubelet-certificate-authority.
func TestKubeletAuthority(t *testing.T) {
	trusted := newAuthority(t, "kubelets")
	prove(t, []string{"--kubelet-certificate-authority=" + trusted.file},
		promise{"a kubelet whose certificate is of the authority is asked", func(t *testing.T, c *cluster) {
			c.startKubelet(t, trusted)
			c.get(t, c.path("v1", "pods", "logs", "log")).want(t, http.StatusOK)
		}},
		promise{"who shows another certificate gets no request, so that logs, exec and attach can't be intercepted", func(t *testing.T, c *cluster) {
			k := c.startKubelet(t, newAuthority(t, "kubelets"))
			config := rest.CopyConfig(c.config)
			config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
			client, upgrade := newClient(t, config), header{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}
			for path, headers := range map[string]header{"log": nil, "exec?command=ls": upgrade, "attach?stdout=true": upgrade, "portforward?ports=80": upgrade} {
				a := client.send(t, http.MethodGet, c.path("v1", "pods", "logs", path), headers, nil)
				if a.Code < 500 || !strings.Contains(string(a.Body), "certificate signed by unknown authority") {
					t.Errorf("%s is answered with %d:\n%s", path, a.Code, a.Body)
				}
			}
			if len(k.shown) > 0 {
				t.Error("it got a request")
			}
			// For a log, and nothing else, a client may ask not to look.
			c.get(t, c.path("v1", "pods", "logs", "log")+"?insecureSkipTLSVerifyBackend=true").want(t, http.StatusOK)
		}},
	)
}
