package server

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/util/cert"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"

	"github.com/sqube/sqube/server/flagcheck"
	"github.com/sqube/sqube/server/pki"
)

// addressTypes are the types of node addresses, in upstream's default order of preference.
var addressTypes = []string{
	string(corev1.NodeHostName), string(corev1.NodeInternalDNS), string(corev1.NodeInternalIP), string(corev1.NodeExternalDNS), string(corev1.NodeExternalIP),
}

// addKubeletFlags adds kube-apiserver's flags for connections to kubelets.
func addKubeletFlags(fs *pflag.FlagSet, c *kubeletclient.KubeletClientConfig) {
	fs.StringVar(&c.TLSClientConfig.CertFile, "kubelet-client-certificate", "", "File with the client certificate for kubelets, in PEM. If unset, the one under --data-dir.")
	fs.StringVar(&c.TLSClientConfig.KeyFile, "kubelet-client-key", "", "File with the key of --kubelet-client-certificate in PEM.")
	fs.StringVar(&c.TLSClientConfig.CAFile, "kubelet-certificate-authority", "", "File with the CAs of kubelets' serving certificates, in PEM. If this cluster signs them, use pki/ca.crt under --data-dir. If unset, the certificates are not verified, and anyone between the server and a node can read logs and use exec.")
	fs.StringSliceVar(&c.PreferredAddressTypes, "kubelet-preferred-address-types", c.PreferredAddressTypes, "Kinds of node addresses at which to reach a kubelet. The server uses the first one that the node has.")
	fs.UintVar(&c.Port, "kubelet-port", c.Port, "Port of a kubelet if its Node does not have one.")
	fs.UintVar(&c.ReadOnlyPort, "kubelet-read-only-port", c.ReadOnlyPort, "Port of kubelets without TLS.")
	for _, name := range []string{"kubelet-port", "kubelet-read-only-port"} {
		fs.Lookup(name).Deprecated = "nodes report the port of their kubelet"
	}
}

// completeKubelet checks the flags for connections to kubelets.
func (o *Options) completeKubelet() error {
	tls := o.Kubelet.TLSClientConfig
	var errs flagcheck.Problems
	errs.Readable("kubelet-client-certificate", tls.CertFile)
	errs.Readable("kubelet-client-key", tls.KeyFile)
	errs.Unless((tls.CertFile == "") == (tls.KeyFile == ""), "--kubelet-client-certificate and --kubelet-client-key must be given together")
	if tls.CAFile != "" {
		_, err := cert.NewPool(tls.CAFile)
		errs.Unless(err == nil || errors.Is(err, fs.ErrNotExist) && o.makes(tls.CAFile), "--kubelet-certificate-authority must name a readable file with certificates in PEM: %w", err)
	}
	for _, kind := range o.Kubelet.PreferredAddressTypes {
		errs.Unless(slices.Contains(addressTypes, kind), "--kubelet-preferred-address-types %q must be one of %s", kind, strings.Join(addressTypes, ", "))
	}
	return errors.Join(errs...)
}

// makes reports whether the file is the cluster's CA certificate, which the first start creates.
func (o *Options) makes(file string) bool {
	named, err := filepath.Abs(file)
	made, failed := filepath.Abs(pki.CACertFile(o.DataDir))
	return err == nil && failed == nil && named == made && !o.InMemory
}

// kubelet returns the configuration of connections to kubelets. They use the client certificate in keys unless a flag names
// another one, and egress unless it is nil.
func (o *Options) kubelet(keys *pki.PKI, egress *egressselector.EgressSelector) kubeletclient.KubeletClientConfig {
	c := o.Kubelet
	if c.TLSClientConfig.CertFile == "" && !o.Virtual { // a goroutine that never ends follows a file
		c.TLSClientConfig.CertFile, c.TLSClientConfig.KeyFile = keys.KubeletClient.CertFile, keys.KubeletClient.KeyFile
	}
	if egress != nil {
		c.Lookup = egress.Lookup
	}
	return c
}
