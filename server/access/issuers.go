package access

import (
	"fmt"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/sqube/sqube/server/console"
)

// TrustsIssuers reports whether flags make the server accept ID tokens of OpenID Connect issuers.
func (o *Options) TrustsIssuers() bool {
	return o.Authentication.OIDC.IssuerURL != "" || o.Authentication.AuthenticationConfigFile != ""
}

// aboutIssuers returns the options that say which issuers are trusted.
func (o *Options) aboutIssuers() kubeoptions.BuiltInAuthenticationOptions {
	return kubeoptions.BuiltInAuthenticationOptions{
		OIDC: o.Authentication.OIDC, AuthenticationConfigFile: o.Authentication.AuthenticationConfigFile, Anonymous: o.Authentication.Anonymous,
	}
}

// Issuers returns the issuers whose ID tokens are accepted, with their names, CAs and proxies as the authenticator has them.
func (o *Options) Issuers(egress *egressselector.EgressSelector) ([]console.Issuer, error) {
	if !o.TrustsIssuers() {
		return nil, nil
	}
	options := o.aboutIssuers()
	config, err := options.ToAuthenticationConfig()
	if err != nil {
		return nil, err
	}
	var found []console.Issuer
	for _, jwt := range config.AuthenticationConfig.JWT {
		i := console.Issuer{URL: jwt.Issuer.URL, DiscoveryURL: jwt.Issuer.DiscoveryURL, Audiences: jwt.Issuer.Audiences, Authority: jwt.Issuer.CertificateAuthority}
		if kind, ok := egressKinds[jwt.Issuer.EgressSelectorType]; ok && egress != nil {
			if i.Dial, err = egress.Lookup(kind.AsNetworkContext()); err != nil {
				return nil, fmt.Errorf("the proxy to the issuer %s: %w", i.URL, err)
			}
		}
		found = append(found, i)
	}
	return found, nil
}

var egressKinds = map[apiserver.EgressSelectorType]egressselector.EgressType{
	apiserver.EgressSelectorControlPlane: egressselector.ControlPlane, apiserver.EgressSelectorCluster: egressselector.Cluster,
}
