package resources

import (
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/informers"
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

	ControllerManager, Scheduler bool // run in the server, for componentstatuses

	EventTTL time.Duration // how long events are kept; 0 keeps them
	Repair   time.Duration // how often allocated addresses and ports are compared with Services; 0 for upstream's interval

	// With an emulated version, newer APIs are not served, except newer versions of older APIs (NewerVersions), and APIs that
	// --runtime-config names (NewerConfigured).
	NewerVersions, NewerConfigured bool
}

// Services has the ranges of the addresses and ports of Services.
type Services struct {
	IPRange          net.IPNet
	SecondaryIPRange net.IPNet // of the other IP family; empty for single-stack
	NodePorts        utilnet.PortRange
}

// ServiceAccounts is how serviceaccounts/token issues tokens.
type ServiceAccounts struct {
	Issuer              serviceaccount.TokenGenerator // nil leaves serviceaccounts/token out
	Audiences           authenticator.Audiences       // for requests that name none
	MaxExpiration       time.Duration                 // 0 for no limit
	ExtendExpiration    bool                          // tokens for old clients live longer, while their use is counted
	MaxExtendedDuration time.Duration                 // how much longer
}
