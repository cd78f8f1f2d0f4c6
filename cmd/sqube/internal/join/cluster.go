package join

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
)

// Cluster is what a node needs to know to join.
type Cluster struct {
	// Server is the URL at which nodes reach the API.
	Server string
	// CA is the CA of the server's certificate, in PEM.
	CA []byte
	// Version is the Kubernetes version, such as v1.37.2.
	Version string
	// ServiceRange is the first CIDR of the cluster IPs of Services, and DNS the address of the cluster's DNS in it.
	ServiceRange, DNS string
}

// ReadCluster reads the cluster from the server. server is the URL for nodes; if "", it is the address in the endpoints of the Service
// kubernetes, or if there is none, the one in the kubeconfig.
func ReadCluster(ctx context.Context, client kubernetes.Interface, kubeconfig *clientcmdapi.Config, server string) (*Cluster, error) {
	current := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if current == nil || kubeconfig.Clusters[current.Cluster] == nil { // such as in the ConfigMap cluster-info, which can be used nonetheless
		return nil, errors.New("the kubeconfig has no current context with a cluster")
	}
	entry := kubeconfig.Clusters[current.Cluster]
	c := &Cluster{Server: server, CA: entry.CertificateAuthorityData}
	if len(c.CA) == 0 {
		return nil, errors.New("the kubeconfig holds no certificate authority (certificate-authority-data), which nodes need")
	}
	if c.Server == "" {
		var err error
		if c.Server, err = advertised(ctx, client); err != nil {
			return nil, err
		}
		c.Server = cmp.Or(c.Server, entry.Server)
		if err := c.reachable(ctx); err != nil {
			return nil, err
		}
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	c.Version = version.GitVersion
	ranges, err := client.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || len(ranges.Spec.CIDRs) == 0 {
		return nil, errors.Join(errors.New("get the range of Services (ServiceCIDR kubernetes)"), err)
	}
	c.ServiceRange = ranges.Spec.CIDRs[0]
	dns, err := constants.GetDNSIP(c.ServiceRange)
	if err != nil {
		return nil, err
	}
	c.DNS = dns.String()
	return c, nil
}

// advertised returns the URL of an endpoint of the Service kubernetes, "" if there is none.
func advertised(ctx context.Context, client kubernetes.Interface) (string, error) {
	slices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		return "", fmt.Errorf("get the advertised address of the server: %w", err)
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if len(endpoint.Addresses) > 0 && len(slice.Ports) > 0 && slice.Ports[0].Port != nil {
				return "https://" + net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*slice.Ports[0].Port))), nil
			}
		}
	}
	return "", nil
}

// dialTimeout limits the check of the server's address.
const dialTimeout = 10 * time.Second

// reachable returns an error if nodes can't reach the server's address, such as with --bind-address 127.0.0.1: it is a loopback address,
// or nothing listens there.
func (c *Cluster) reachable(ctx context.Context) error {
	const advice = "start the server with a --bind-address that nodes can reach, such as 0.0.0.0, or give its address for nodes with --server"
	if u, err := url.Parse(c.Server); err == nil {
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			return fmt.Errorf("nodes can't reach %s: %s", c.Server, advice)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.Endpoint())
	if err != nil {
		return fmt.Errorf("the server advertises %s, which can't be reached (%w): %s", c.Server, err, advice)
	}
	return conn.Close()
}

// Endpoint is the host and the port of Server. kubeadm needs both.
func (c *Cluster) Endpoint() string {
	u, err := url.Parse(c.Server)
	if err != nil || u.Host == "" {
		return c.Server
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
}

// Pins returns the hashes of the CA's public keys, in the format of kubeadm's --discovery-token-ca-cert-hash (RFC 7469).
func (c *Cluster) Pins() ([]string, error) {
	certs, err := certutil.ParseCertsPEM(c.CA)
	if err != nil {
		return nil, err
	}
	var pins []string
	for _, cert := range certs {
		pins = append(pins, fmt.Sprintf("sha256:%x", sha256.Sum256(cert.RawSubjectPublicKeyInfo)))
	}
	return pins, nil
}

// BootstrapKubeconfig returns a kubeconfig with the token, for a kubelet's --bootstrap-kubeconfig.
func (c *Cluster) BootstrapKubeconfig(token string) ([]byte, error) {
	const name, user = "sqube", "kubelet-bootstrap"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = c.entry()
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

func (c *Cluster) entry() *clientcmdapi.Cluster {
	return &clientcmdapi.Cluster{Server: c.Server, CertificateAuthorityData: c.CA}
}
