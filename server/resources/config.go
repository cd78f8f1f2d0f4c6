package resources

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// Config is what the built-in storages need from the rest of the server.
type Config struct {
	RESTOptions generic.RESTOptionsGetter     // where objects are stored; usually a *RESTOptions
	Versions    *serverstorage.ResourceConfig // the served versions; see DefaultVersions and ParseRuntimeConfig

	Loopback  *rest.Config                    // reaches this server in process; used only once it serves
	Informers informers.SharedInformerFactory // over Loopback; the caller starts it

	Services        Services
	ServiceAccounts ServiceAccounts

	Kubelet        kubeletclient.KubeletClientConfig // how to reach kubelets for log, exec and proxy
	ProxyTransport http.RoundTripper                 // carries proxied requests to pods, services and nodes

	Authenticator authenticator.Request // for TokenReviews
	Authorizer    authorizer.Authorizer // for access reviews, and against escalation
	RuleResolver  authorizer.RuleResolver

	EventTTL time.Duration // how long events are kept; 0 keeps them

	// With an emulated version, newer APIs are not served, except newer versions of older APIs (NewerVersions), and APIs that
	// --runtime-config names (NewerConfigured).
	NewerVersions, NewerConfigured bool
}

// Services has the ranges of the addresses and ports of Services.
type Services struct {
	IPRange          net.IPNet         // required
	SecondaryIPRange net.IPNet         // of the other IP family; empty for single-stack
	NodePorts        utilnet.PortRange // empty for 30000-32767
	RepairInterval   time.Duration     // how often allocations are compared with Services; 0 for upstream's 3 minutes
}

// nodePorts returns the range of node ports, with its default.
func (s Services) nodePorts() utilnet.PortRange {
	if s.NodePorts.Size == 0 {
		return utilnet.PortRange{Base: 30000, Size: 2768}
	}
	return s.NodePorts
}

// ServiceAccounts is how serviceaccounts/token issues tokens.
type ServiceAccounts struct {
	Issuer              serviceaccount.TokenGenerator // nil leaves serviceaccounts/token out
	Audiences           authenticator.Audiences       // for requests that name none
	MaxExpiration       time.Duration                 // 0 for no limit
	ExtendExpiration    bool                          // tokens for old clients live longer, while their use is counted
	MaxExtendedDuration time.Duration                 // how much longer
}

// repairInterval is how often allocations are repaired, like upstream.
const repairInterval = 3 * time.Minute

// client checks the configuration and returns a client over the loopback.
func (c Config) client() (*kubernetes.Clientset, error) {
	switch {
	case c.RESTOptions == nil:
		return nil, errors.New("resources.Config: RESTOptions is required")
	case c.Versions == nil:
		return nil, errors.New("resources.Config: Versions is required: DefaultVersions or ParseRuntimeConfig")
	case c.Loopback == nil || c.Informers == nil:
		return nil, errors.New("resources.Config: Loopback and Informers are required")
	case c.Authorizer == nil:
		return nil, errors.New("resources.Config: Authorizer is required")
	case c.Services.IPRange.IP == nil:
		return nil, errors.New("resources.Config: Services.IPRange is required: set --service-cluster-ip-range")
	}
	client, err := kubernetes.NewForConfig(c.Loopback)
	if err != nil {
		return nil, fmt.Errorf("making the loopback client: %w", err)
	}
	return client, nil
}
