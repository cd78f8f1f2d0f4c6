package join

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/util"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pubkeypin"
	netutils "k8s.io/utils/net"
)

// Cluster is what a node needs to know to join.
type Cluster struct {
	// Server is the URL at which nodes reach the API.
	Server string
	// CA is the CA of the server's certificate, in PEM.
	CA []byte
	// Version is the Kubernetes version, such as v1.36.3.
	Version string
	// ServiceRange is the first CIDR of the cluster IPs of Services, and DNS the address of the cluster's DNS in it.
	ServiceRange, DNS string
}

// dnsIndex is the index of kubeadm's DNS address in the range of Services.
const dnsIndex = 10

// ReadCluster reads the cluster from the server. server is the URL for nodes; if "", it is the address in the endpoints of the Service
// kubernetes, or if there is none, the one in the kubeconfig.
func ReadCluster(ctx context.Context, client kubernetes.Interface, kubeconfig *clientcmdapi.Config, server string) (*Cluster, error) {
	entry := kubeconfig.Clusters[kubeconfig.Contexts[kubeconfig.CurrentContext].Cluster]
	c := &Cluster{Server: server, CA: entry.CertificateAuthorityData}
	if len(c.CA) == 0 {
		return nil, errors.New("the kubeconfig holds no certificate authority (certificate-authority-data), which nodes need")
	}
	if c.Server == "" {
		var err error
		if c.Server, err = advertised(ctx, client); err != nil {
			return nil, err
		}
	}
	if c.Server == "" {
		c.Server = entry.Server
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
	_, cidr, err := netutils.ParseCIDRSloppy(c.ServiceRange)
	if err != nil {
		return nil, err
	}
	dns, err := netutils.GetIndexedIP(cidr, dnsIndex)
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

// Pins returns the hashes of the CA's public keys, in the format of kubeadm's --discovery-token-ca-cert-hash (RFC 7469).
func (c *Cluster) Pins() ([]string, error) {
	certs, err := certutil.ParseCertsPEM(c.CA)
	if err != nil {
		return nil, err
	}
	var pins []string
	for _, cert := range certs {
		pins = append(pins, pubkeypin.Hash(cert))
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

// NodeGroup is the group of users with a bootstrap token that may join as nodes.
const NodeGroup = "system:bootstrappers:kubeadm:default-node-token"

// CreateToken creates a bootstrap token for nodes and returns it. It expires after lifetime, or never if that is 0.
func CreateToken(ctx context.Context, client kubernetes.Interface, description string, lifetime time.Duration) (string, error) {
	token, err := util.GenerateBootstrapToken()
	if err != nil {
		return "", err
	}
	id, secret := token[:api.BootstrapTokenIDBytes], token[api.BootstrapTokenIDBytes+1:]
	data := map[string]string{
		api.BootstrapTokenIDKey: id, api.BootstrapTokenSecretKey: secret, api.BootstrapTokenDescriptionKey: description,
		api.BootstrapTokenUsageAuthentication: "true", api.BootstrapTokenUsageSigningKey: "true",
		api.BootstrapTokenExtraGroupsKey: NodeGroup,
	}
	if lifetime > 0 {
		data[api.BootstrapTokenExpirationKey] = time.Now().UTC().Add(lifetime).Format(time.RFC3339)
	}
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: api.BootstrapTokenSecretPrefix + id},
		Type:       api.SecretTypeBootstrapToken,
		StringData: data,
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create the token: %w", err)
	}
	return token, nil
}
