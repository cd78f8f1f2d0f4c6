package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/metrics"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	netutils "k8s.io/utils/net"

	"github.com/sqube/sqube/server/access"
	"github.com/sqube/sqube/server/admission"
	"github.com/sqube/sqube/server/aggregation"
	"github.com/sqube/sqube/server/audit"
	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/vault"
)

// Options are the settings of a Server. Those that kube-apiserver has too bear
// its names as flags, and mean the same.
type Options struct {
	DataDir     string
	BindAddress net.IP
	SecurePort  int
	// AdvertiseAddress is where the cluster reaches this server; nil to find
	// it out.
	AdvertiseAddress net.IP
	// EndpointReconciler says whether that address is put into the endpoints
	// of the Service kubernetes.
	EndpointReconciler string
	TLSCertFile        string
	TLSKeyFile         string
	TLSNames           []string // more names for the certificate that is made without these files

	ServiceClusterIPRange string // one range, or one of each family
	ServiceNodePortRange  utilnet.PortRange
	RuntimeConfig         cliflag.ConfigurationMap
	EventTTL              time.Duration
	KubeletCA             string // file with the authorities of kubelets' serving certificates
	AllowPrivileged       bool   // on the whole process: Pod validation reads a global

	CORSAllowedOrigins   []string
	MaxInFlight          int
	MaxMutatingInFlight  int
	PriorityAndFairness  bool
	RequestTimeout       time.Duration
	MinRequestTimeout    time.Duration
	LivezGracePeriod     time.Duration // for which /livez takes the start to succeed
	ShutdownDelay        time.Duration // from not being ready to draining
	ShutdownGracePeriod  time.Duration
	MaxRequestBodyBytes  int64
	SharedDatastore      bool // other servers use the same database
	Encryption           encryption.Options
	Vault                vault.Options
	Access               *access.Options
	Aggregation          *aggregation.Options
	Admission            *admission.Options
	Audit                *audit.Options
	Metrics              *metrics.Options
	serviceRange, second net.IPNet
	sharedKeys           *vault.Keys
}

// NewOptions returns kube-apiserver's defaults, and those of a kubeadm cluster where that sets others.
func NewOptions() *Options {
	return &Options{
		DataDir:               "./data",
		BindAddress:           net.IPv4zero,
		SecurePort:            6443,
		EndpointReconciler:    leaseEndpoint,
		ServiceClusterIPRange: "10.0.0.0/24",
		ServiceNodePortRange:  utilnet.PortRange{Base: 30000, Size: 2768},
		RuntimeConfig:         cliflag.ConfigurationMap{},
		EventTTL:              time.Hour,
		AllowPrivileged:       true,
		MaxInFlight:           400,
		MaxMutatingInFlight:   200,
		PriorityAndFairness:   true,
		RequestTimeout:        time.Minute,
		MinRequestTimeout:     30 * time.Minute,
		ShutdownGracePeriod:   30 * time.Second,
		MaxRequestBodyBytes:   3 << 20,
		Access:                access.NewOptions(),
		Aggregation:           aggregation.NewOptions(),
		Admission:             admission.NewOptions(),
		Audit:                 audit.NewOptions(),
		Metrics:               metrics.NewOptions(),
	}
}

// The values of --endpoint-reconciler-type.
const (
	leaseEndpoint = string(reconcilers.LeaseEndpointReconcilerType)
	noEndpoint    = string(reconcilers.NoneEndpointReconcilerType)
)

// Sections of the flags.
const (
	StateFlags       = "State"
	ServingFlags     = "Serving"
	ClusterFlags     = "Cluster"
	LimitFlags       = "Limits"
	AccessFlags      = "Authentication and authorization"
	AggregationFlags = "Aggregation"
	AdmissionFlags   = "Admission"
	AuditFlags       = "Audit"
	MetricsFlags     = "Metrics"
)

// AddFlags adds all flags but those on the database and on logging, in
// sections.
func (o *Options) AddFlags(sections *cliflag.NamedFlagSets) {
	fs := sections.FlagSet(StateFlags)
	fs.StringVar(&o.DataDir, "data-dir", o.DataDir, "Folder of everything that the server keeps: its keys under pki, admin.kubeconfig, and the SQLite database if --datastore does not name another.")
	o.Encryption.AddFlags(fs)
	o.Vault.AddFlags(fs)

	fs = sections.FlagSet(ServingFlags)
	fs.IPVar(&o.BindAddress, "bind-address", o.BindAddress, "Address to listen on. 0.0.0.0 and :: mean all addresses of this machine.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "Port to serve HTTPS on.")
	fs.IPVar(&o.AdvertiseAddress, "advertise-address", nil, "Address at which the cluster reaches this server. If unset, --bind-address or an address of this machine.")
	fs.StringVar(&o.EndpointReconciler, "endpoint-reconciler-type", o.EndpointReconciler, "Whether the endpoints of the Service kubernetes are the addresses of the servers that are alive (lease), or whatever somebody else puts there (none).")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", "", "File with the serving certificate, and its chain, in PEM. If unset, one is made under --data-dir.")
	fs.StringVar(&o.TLSKeyFile, "tls-private-key-file", "", "File with the key of --tls-cert-file in PEM.")
	fs.StringSliceVar(&o.TLSNames, "tls-san", nil, "More DNS names and IP addresses under which clients reach this server, such as those of a load balancer; they are put into the certificate that is made without --tls-cert-file.")
	fs.StringSliceVar(&o.CORSAllowedOrigins, "cors-allowed-origins", nil, "Regular expressions of origins that browsers may send requests from. They should begin with ^ or // and end with $ or :.")

	fs = sections.FlagSet(ClusterFlags)
	fs.StringVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", o.ServiceClusterIPRange, "CIDR of the cluster IPs of Services; for dual-stack two, one of each family, with a comma between.")
	fs.Var(&o.ServiceNodePortRange, "service-node-port-range", "Ports for Services of type NodePort. Both ends belong to the range.")
	fs.Var(&o.RuntimeConfig, "runtime-config", "Which API versions are served, as key=true or key=false: group/version (v1 for the core group), group/version/resource, api/all, api/ga, api/beta, api/alpha.")
	fs.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "For how long Events are kept.")
	fs.StringVar(&o.KubeletCA, "kubelet-certificate-authority", "", "File with the authorities that kubelets' serving certificates must be of, in PEM. If unset, these are not verified: whoever gets between the server and a node can read logs and use exec.")
	fs.BoolVar(&o.AllowPrivileged, "allow-privileged", o.AllowPrivileged, "Allow privileged containers, which CNI plugins, kube-proxy and CSI drivers need. Pod Security admission restricts them by namespace.")

	fs = sections.FlagSet(LimitFlags)
	fs.IntVar(&o.MaxInFlight, "max-requests-inflight", o.MaxInFlight, "How many reading requests may run at once; further ones are told to come again. 0 for no limit.")
	fs.IntVar(&o.MaxMutatingInFlight, "max-mutating-requests-inflight", o.MaxMutatingInFlight, "How many writing requests may run at once; further ones are told to come again. 0 for no limit.")
	fs.BoolVar(&o.PriorityAndFairness, "enable-priority-and-fairness", o.PriorityAndFairness, "Share what the server can do at once, which is the sum of both limits, among users and kinds of requests as FlowSchemas say. If false, both limits hold by themselves.")
	fs.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout, "How long a request may take. Watches have --min-request-timeout instead.")
	minTimeout := fs.Int("min-request-timeout", int(o.MinRequestTimeout.Seconds()), "Seconds that a watch runs at least before the server ends it, unless the client asks for less. Each runs up to twice as long.")
	fs.Lookup("min-request-timeout").Value = secondsValue{fs.Lookup("min-request-timeout").Value, minTimeout, &o.MinRequestTimeout}
	fs.DurationVar(&o.LivezGracePeriod, "livez-grace-period", 0, "How long /livez takes for granted that what a start does will succeed.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", 0, "How long the server goes on serving, with /readyz failing, once it was told to stop. Load balancers see in that time that it will be gone.")
	fs.DurationVar(&o.ShutdownGracePeriod, "shutdown-grace-period", o.ShutdownGracePeriod, "How long running requests have to finish once the server takes no new ones.")

	o.Access.AddFlags(sections.FlagSet(AccessFlags))
	o.Admission.AddFlags(sections.FlagSet(AdmissionFlags))
	o.Aggregation.AddFlags(sections.FlagSet(AggregationFlags))
	o.Audit.AddFlags(sections.FlagSet(AuditFlags))
	o.Metrics.AddFlags(sections.FlagSet(MetricsFlags))
}

// secondsValue is a flag in seconds for a field that is a duration.
type secondsValue struct {
	pflag.Value
	seconds *int
	target  *time.Duration
}

// Set implements pflag.Value.
func (v secondsValue) Set(text string) error {
	err := v.Value.Set(text)
	*v.target = time.Duration(*v.seconds) * time.Second
	return err
}

// Complete checks the options, and fills in what follows from others. An error
// names the flag and says what it takes.
func (o *Options) Complete() error {
	var errs []error
	if o.SecurePort < 1 || o.SecurePort > 65535 {
		errs = append(errs, fmt.Errorf("--secure-port %d must be between 1 and 65535", o.SecurePort))
	}
	if o.EndpointReconciler != leaseEndpoint && o.EndpointReconciler != noEndpoint {
		errs = append(errs, fmt.Errorf("--endpoint-reconciler-type %q must be lease or none", o.EndpointReconciler))
	}
	if (o.TLSCertFile == "") != (o.TLSKeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file must be given together"))
	}
	for _, name := range o.TLSNames {
		if err := pki.CheckName(name); err != nil {
			errs = append(errs, fmt.Errorf("--tls-san: %w", err))
		}
	}
	for i, text := range strings.Split(o.ServiceClusterIPRange, ",") {
		_, cidr, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text))
		switch {
		case err != nil || i > 1:
			errs = append(errs, fmt.Errorf("--service-cluster-ip-range %q must be a CIDR such as 10.0.0.0/24, or one of each IP family with a comma between", o.ServiceClusterIPRange))
		case i == 0:
			o.serviceRange = *cidr
		case netutils.IsIPv6CIDR(cidr) == netutils.IsIPv6CIDR(&o.serviceRange):
			errs = append(errs, fmt.Errorf("--service-cluster-ip-range %q must not have two ranges of one IP family", o.ServiceClusterIPRange))
		default:
			o.second = *cidr
		}
	}
	for _, origin := range o.CORSAllowedOrigins {
		if _, err := regexp.Compile(origin); err != nil {
			errs = append(errs, fmt.Errorf("--cors-allowed-origins %q must be a regular expression: %w", origin, err))
		}
	}
	if versions, err := resources.ParseRuntimeConfig(o.RuntimeConfig); err != nil {
		errs = append(errs, err)
	} else if o.PriorityAndFairness && !versions.ResourceEnabled(flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas")) {
		errs = append(errs, errors.New("--runtime-config must leave flowcontrol.apiserver.k8s.io/v1 on, or --enable-priority-and-fairness must be false"))
	}
	for flag, d := range map[string]time.Duration{"request-timeout": o.RequestTimeout, "min-request-timeout": o.MinRequestTimeout} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s must be more than 0", flag))
		}
	}
	for flag, number := range map[string]int64{
		"event-ttl": int64(o.EventTTL), "livez-grace-period": int64(o.LivezGracePeriod), "shutdown-delay-duration": int64(o.ShutdownDelay),
		"max-requests-inflight": int64(o.MaxInFlight), "max-mutating-requests-inflight": int64(o.MaxMutatingInFlight),
	} {
		if number < 0 {
			errs = append(errs, fmt.Errorf("--%s must be 0 or more", flag))
		}
	}
	for _, err := range o.Metrics.Validate() {
		errs = append(errs, fmt.Errorf("--show-hidden-metrics-for-version and --allow-metric-labels: %w", err))
	}
	if len(errs) == 0 {
		errs = append(errs, o.checkServiceRange())
	}
	var err error
	o.sharedKeys, err = o.Vault.Load()
	errs = append(errs, err)
	if o.KubeletCA != "" {
		if _, err := cert.NewPool(o.KubeletCA); err != nil {
			errs = append(errs, fmt.Errorf("--kubelet-certificate-authority must name a readable file with certificates in PEM: %w", err))
		}
	}
	for flag, path := range map[string]string{"tls-cert-file": o.TLSCertFile, "tls-private-key-file": o.TLSKeyFile} {
		if path == "" {
			continue
		}
		if _, err := os.ReadFile(path); err != nil {
			errs = append(errs, fmt.Errorf("--%s must name a readable file: %w", flag, err))
		}
	}
	return errors.Join(append(errs, o.Encryption.Validate(), o.Access.Validate(), o.Admission.Validate(), o.Aggregation.Validate(), o.Audit.Validate())...)
}

// minServiceAddresses is how many cluster IPs there have to be at least, as
// with kube-apiserver.
const minServiceAddresses = 8

// checkServiceRange checks the first range, of which the kubernetes Service has
// an address. Its endpoint is the server's own address, of the same IP family.
func (o *Options) checkServiceRange() error {
	if netutils.RangeSize(&o.serviceRange) < minServiceAddresses {
		return fmt.Errorf("--service-cluster-ip-range %s must hold at least %d addresses", &o.serviceRange, minServiceAddresses)
	}
	address := o.AdvertiseAddress
	if address == nil {
		address = bootstrap.AdvertiseAddress(o.BindAddress)
	}
	if address != nil && netutils.IsIPv6(address) != netutils.IsIPv6CIDR(&o.serviceRange) {
		return fmt.Errorf("--service-cluster-ip-range must begin with a range of the IP family of the server's own address, %s; --advertise-address sets another", address)
	}
	return nil
}

// URL is how clients on this machine reach the server.
func (o *Options) URL() string {
	host := o.BindAddress
	if host == nil || host.IsUnspecified() {
		host = net.IPv4(127, 0, 0, 1)
	}
	return "https://" + net.JoinHostPort(host.String(), strconv.Itoa(o.SecurePort))
}
