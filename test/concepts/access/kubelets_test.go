package access

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

	"github.com/sqube/sqube/test/concepts/kit"
)

// kubeletServer is the server of a node's kubelet. It responds with the requested path, and records the certificate of the API
// server.
type kubeletServer struct {
	*httptest.Server
	shown chan *x509.Certificate
}

// startKubelet starts one on 127.0.0.1 with a certificate of the authority, and creates the promise's node with the Pod "logs".
func startKubelet(t testing.TB, c *kit.Cluster, a *kit.Authority) *kubeletServer {
	t.Helper()
	issued := a.Issue(t, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	k := &kubeletServer{shown: make(chan *x509.Certificate, 100)}
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.shown <- r.TLS.PeerCertificates[0]
		if _, err := io.WriteString(w, r.URL.Path); err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	k.TLS = &tls.Config{Certificates: issued.ForTLS(t), ClientAuth: tls.RequireAnyClientCert}
	k.Config.ErrorLog = log.New(io.Discard, "", 0) // of expected handshake failures
	k.StartTLS()
	t.Cleanup(k.Close)

	nodes := c.ClusterPath("v1", "nodes")
	c.Post(t, nodes, kit.Manifest("{metadata: {name: %s}}", c.Namespace)).Created(t)
	c.DeleteAtEnd(t, nodes+"/"+c.Namespace)
	c.Patch(t, kit.MergePatch, nodes+"/"+c.Namespace+"/status", kit.Manifest(`{status: {addresses: [{type: InternalIP, address: 127.0.0.1}],
		daemonEndpoints: {kubeletEndpoint: {Port: %d}}}}`, k.Listener.Addr().(*net.TCPAddr).Port)).OK(t)
	c.MakeDefaultServiceAccount(t)
	c.Post(t, c.Path("v1", "pods"), kit.With(kit.Pod("logs"), c.Namespace, "spec", "nodeName")).Created(t)
	return k
}

var kubeletAccess = kit.Promise{Statement: "kubelets are called by a user who may use their API, and nothing else in the cluster", Proof: func(t *testing.T, c *kit.Cluster) {
	k := startKubelet(t, c, kit.NewAuthority(t, "kubelets"))
	if got, want := string(c.Get(t, c.Path("v1", "pods", "logs", "log")).OK(t).Body), "/containerLogs/"+c.Namespace+"/logs/c"; got != want {
		t.Errorf("the log is %q instead of %q", got, want)
	}
	shown := <-k.shown
	const name = "kube-apiserver-kubelet-client"
	if shown.Subject.CommonName != name || len(shown.Subject.Organization) > 0 {
		t.Errorf("the kubelet received a certificate for %s", shown.Subject)
	}
	user := c.As(t, name)
	for _, subresource := range []string{"proxy", "log", "stats", "metrics", "configz", "healthz", "pods"} {
		spec := authorizationv1.SubjectAccessReviewSpec{User: name, Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Version: "v1", Resource: "nodes", Subresource: subresource, Name: c.Namespace}}
		if !c.ReviewAccess(t, spec).Allowed {
			t.Errorf("it may not get nodes/%s", subresource)
		}
	}
	user.Get(t, c.Path("v1", "secrets")).Forbidden(t)
	user.Post(t, c.Path("v1", "pods"), kit.Pod("p")).Forbidden(t)
	user.Post(t, c.ClusterPath(rbacVersion, "clusterrolebindings"), binding(c, "ClusterRoleBinding", "ClusterRole/cluster-admin", "User/"+name)).Forbidden(t)
}}

// TestKubeletAuthority uses kube-apiserver's flag --kubelet-certificate-authority.
func TestKubeletAuthority(t *testing.T) {
	trusted := kit.NewAuthority(t, "kubelets")
	kit.Prove(t, []string{"--kubelet-certificate-authority=" + trusted.File},
		kit.Promise{Statement: "a kubelet with a certificate of the authority receives requests", Proof: func(t *testing.T, c *kit.Cluster) {
			startKubelet(t, c, trusted)
			c.Get(t, c.Path("v1", "pods", "logs", "log")).OK(t)
		}},
		kit.Promise{Statement: "a server with another certificate receives no request, so logs, exec and attach can't be intercepted", Proof: func(t *testing.T, c *kit.Cluster) {
			k := startKubelet(t, c, kit.NewAuthority(t, "kubelets"))
			config := rest.CopyConfig(c.Config)
			config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
			client, upgrade := kit.NewClient(t, config), kit.Header{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}
			for path, headers := range map[string]kit.Header{"log": nil, "exec?command=ls": upgrade, "attach?stdout=true": upgrade, "portforward?ports=80": upgrade} {
				a := client.Send(t, http.MethodGet, c.Path("v1", "pods", "logs", path), headers, nil)
				if a.Code < 500 || !strings.Contains(string(a.Body), "certificate signed by unknown authority") {
					t.Errorf("%s returned %d:\n%s", path, a.Code, a.Body)
				}
			}
			if len(k.shown) > 0 {
				t.Error("it received a request")
			}
			// Only for logs, a client may skip the verification.
			c.Get(t, c.Path("v1", "pods", "logs", "log")+"?insecureSkipTLSVerifyBackend=true").OK(t)
		}},
	)
}
