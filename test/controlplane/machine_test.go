package controlplane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
)

// machine is a machine that joins as a node.
type machine struct {
	name, server string
	ca           []byte
	config       *rest.Config // as the node, once it has a certificate
	kubelet      net.Listener
}

// join makes the machine a node: it discovers the cluster, gets a certificate, registers, and serves like a kubelet.
func (m *machine) join(t *testing.T, token, hash string) {
	t.Helper()
	m.discover(t, token, hash)
	m.bootstrap(t, token)
	m.register(t)
	m.renewLease(t)
	m.renewCertificate(t)
	m.serve(t)
	fakenode.Join(t, m.config, simnodes.Options{Names: []string{m.name}, PodsOnly: true})
}

// discover reads the cluster's information from a server that it can't verify yet: that is signed with the token, and the hash
// is that of its authority.
func (m *machine) discover(t *testing.T, token, hash string) {
	anybody, err := kubernetes.NewForConfig(&rest.Config{Host: m.server, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	harness.Must(t, err)
	id, secret, _ := strings.Cut(token, ".")
	var info *corev1.ConfigMap
	harness.Eventually(t, "the cluster information is signed with the token", func() bool {
		info, err = anybody.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", metav1.GetOptions{})
		return err == nil && info.Data["jws-kubeconfig-"+id] != ""
	})
	if !jws.DetachedTokenIsValid(info.Data["jws-kubeconfig-"+id], info.Data["kubeconfig"], id, secret) {
		t.Fatal("the signature is not the token's")
	}
	kubeconfig, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	harness.Must(t, err)
	if kubeconfig.Clusters[""].Server != m.server {
		t.Errorf("the cluster is at %s", kubeconfig.Clusters[""].Server)
	}
	m.ca = kubeconfig.Clusters[""].CertificateAuthorityData
	block, _ := pem.Decode(m.ca)
	cert, err := x509.ParseCertificate(block.Bytes)
	harness.Must(t, err)
	if sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo); hash != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("the hash %s is of another authority", hash)
	}
}

func (m *machine) client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	if config == nil {
		config = m.config
	}
	c, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return c
}

// bootstrap reads, with the token, what kubeadm reads, and requests the node's first certificate.
func (m *machine) bootstrap(t *testing.T, token string) {
	config := &rest.Config{Host: m.server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: m.ca}}
	c := m.client(t, config)
	// Like kubeadm, it tries again until authentication and authorization know the token.
	for _, name := range []string{"kubeadm-config", "kubelet-config"} {
		harness.Eventually(t, name+" can be read with the token", func() bool {
			_, err := c.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), name, metav1.GetOptions{})
			return err == nil
		})
	}
	harness.Eventually(t, "the node's name is free", func() bool {
		_, err := c.CoreV1().Nodes().Get(t.Context(), m.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	m.useCertificate(t, c)
}

// useCertificate requests a client certificate of the node and uses it from now on.
func (m *machine) useCertificate(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	cert, key := m.request(t, c, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth, &x509.CertificateRequest{})
	m.config = &rest.Config{Host: m.server, TLSClientConfig: rest.TLSClientConfig{CAData: m.ca, CertData: cert, KeyData: key}}
}

// request requests a certificate and waits until it is issued.
func (m *machine) request(t *testing.T, c kubernetes.Interface, signer string, usage certificatesv1.KeyUsage, template *x509.CertificateRequest) (cert, key []byte) {
	t.Helper()
	name, private := m.ask(t, c, signer, usage, template)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	request, err := c.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
	harness.Must(t, err)
	if cert, err = csr.WaitForCertificate(ctx, c, name, request.UID); err != nil {
		t.Fatalf("waiting for a certificate of %s: %v", signer, err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (m *machine) ask(t *testing.T, c kubernetes.Interface, signer string, usage certificatesv1.KeyUsage, template *x509.CertificateRequest) (name string, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Must(t, err)
	template.Subject = pkix.Name{CommonName: "system:node:" + m.name, Organization: []string{"system:nodes"}}
	request, err := cert.MakeCSRFromTemplate(key, template)
	harness.Must(t, err)
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage}
	name, _, err = csr.RequestCertificateWithContext(t.Context(), c, request, "", signer, nil, usages, key)
	harness.Must(t, err)
	return name, key
}

// register creates the Node, as the node itself, and listens on its kubelet's address.
func (m *machine) register(t *testing.T) {
	var err error
	if m.kubelet, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.kubelet.Close() }) // unless its server has closed it
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("20"),
	}
	c := m.client(t, nil)
	if _, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	address := m.kubelet.Addr().(*net.TCPAddr)
	status, err := json.Marshal(corev1.Node{Status: corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}, {Type: corev1.NodeHostName, Address: m.name}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(address.Port)}},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
	}})
	if err == nil {
		_, err = c.CoreV1().Nodes().PatchStatus(t.Context(), m.name, status) // controllers change the rest of it
	}
	harness.Must(t, err)
}

func (m *machine) renewLease(t *testing.T) {
	leases := m.client(t, nil).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &m.name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	if err == nil {
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Error(err)
	}
}

// renewCertificate requests the next certificate, as the node.
func (m *machine) renewCertificate(t *testing.T) {
	before := m.config.CertData
	m.useCertificate(t, m.client(t, nil))
	if bytes.Equal(before, m.config.CertData) {
		t.Error("the certificate was not renewed")
	}
}

// serve serves a kubelet's API, with a requested certificate.
func (m *machine) serve(t *testing.T) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.ca)
	fakenode.Kubelet{Node: m.name, Client: m.client(t, nil), Certificate: m.servingCertificate(t), ClientCAs: roots}.Serve(t, m.kubelet)
}

// servingCertificate requests a certificate for the kubelet's port.
func (m *machine) servingCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	cert, key := m.request(t, m.client(t, nil), certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth,
		&x509.CertificateRequest{DNSNames: []string{m.name}, IPAddresses: []net.IP{m.kubelet.Addr().(*net.TCPAddr).IP}})
	pair, err := tls.X509KeyPair(cert, key)
	harness.Must(t, err)
	return pair
}
