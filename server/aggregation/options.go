package aggregation

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// Options are kube-apiserver's flags for the aggregation layer.
type Options struct {
	// ClientCertFile and ClientKeyFile are the certificate that this server presents to the servers that it proxies requests to.
	ClientCertFile, ClientKeyFile string
	// EndpointRouting sends requests to an endpoint of a Service instead of to its cluster IP.
	EndpointRouting bool
	// RejectRedirects responds with an error if another server's response is a redirect.
	RejectRedirects bool
}

// NewOptions returns kube-apiserver's defaults.
func NewOptions() *Options { return &Options{RejectRedirects: true} }

// AddFlags adds the flags under kube-apiserver's names.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ClientCertFile, "proxy-client-cert-file", "", "File with the client certificate, in PEM, that this server presents to aggregated API servers, so that they trust the user names that it sends. If unset, the server creates one under --data-dir.")
	fs.StringVar(&o.ClientKeyFile, "proxy-client-key-file", "", "File with the key of --proxy-client-cert-file in PEM.")
	fs.BoolVar(&o.EndpointRouting, "enable-aggregator-routing", o.EndpointRouting, "Reach the Services of aggregated APIs and webhooks at their endpoints' addresses instead of their cluster IPs.")
	fs.BoolVar(&o.RejectRedirects, "aggregator-reject-forwarding-redirect", o.RejectRedirects, "Do not forward redirects from aggregated API servers to clients.")
}

// Validate checks the flags. An error names them.
func (o *Options) Validate() error {
	if (o.ClientCertFile == "") != (o.ClientKeyFile == "") {
		return errors.New("--proxy-client-cert-file and --proxy-client-key-file must be given together")
	}
	if o.ClientCertFile == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(o.ClientCertFile, o.ClientKeyFile); err != nil {
		return fmt.Errorf("--proxy-client-cert-file and --proxy-client-key-file must name a certificate and its key: %w", err)
	}
	return nil
}

// Complete sets the certificate to use if no flag names one.
func (o *Options) Complete(certFile, keyFile string) {
	if o.ClientCertFile == "" {
		o.ClientCertFile, o.ClientKeyFile = certFile, keyFile
	}
}
