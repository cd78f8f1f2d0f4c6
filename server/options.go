package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/metrics"
	"k8s.io/kubernetes/pkg/controlplane/controller/leaderelection"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	netutils "k8s.io/utils/net"

	"github.com/sqube/sqube/server/access"
	"github.com/sqube/sqube/server/admission"
	"github.com/sqube/sqube/server/aggregation"
	"github.com/sqube/sqube/server/audit"
	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/server/console"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/flagcheck"
	"github.com/sqube/sqube/server/mirror"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/server/transactions"
)

// virtualInterval is how often a virtual server repeats what a real one repeats in case something outside has changed: each wake-up holds
// up the jumps of its clock.
const virtualInterval = 30 * 24 * time.Hour

// seldom returns virtualInterval with Virtual, otherwise 0.
func (o *Options) seldom() time.Duration {
	if o.Virtual {
		return virtualInterval
	}
	return 0
}

// fair reports whether requests share the limits by priority and fairness.
func (o *Options) fair() bool {
	return o.Features.EnablePriorityAndFairness && o.MaxInFlight+o.MaxMutatingInFlight > 0
}

// resync is how often controllers of definitions and APIServices process all of them, as in kube-apiserver; never with Virtual.
func (o *Options) resync() time.Duration {
	if o.Virtual {
		return 0
	}
	return 5 * time.Minute
}

// Options are the settings of a Server. Settings that kube-apiserver has too have the same flags and the same meaning.
type Options struct {
	// DataDir holds keys, certificates and the administrator's kubeconfig; with InMemory only the kubeconfig.
	DataDir  string
	InMemory bool
	// ReadOnly is what clients are told that want to change something; "" if they may. With it, the server does nothing but answer: it
	// does not prepare the cluster, and connects to nobody.
	ReadOnly string
	// Mirror is the cluster that the server follows, and shows; nil for none. ReadOnly says so. Who somebody is, and what they may see, is asked
	// there.
	Mirror *mirror.Options
	// Virtual runs the server in a bubble of testing/synctest. Dial must not use the network then, and kubelets get no client certificate
	// unless a flag names one.
	Virtual bool
	// Dial makes the server's connections to kubelets, webhooks and aggregated API servers; nil for the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Later, if set, is closed when the server may begin with what no request waits for: to check the default objects, to run controllers. Until then
	// it is not ready, but answers.
	Later <-chan struct{}
	// CopyOf is what the objects of the cluster were copied from; "" if they are its own. A copy connects to none of the nodes, pods,
	// webhooks and other servers that its objects name, except those at the addresses in Outbound: HOST, HOST:PORT, or * for all. Webhooks
	// of admission at other addresses are left out, as if they were not configured.
	CopyOf   string
	Outbound []string
	// Divert is asked about each webhook of a copy that the server may not call, and can give it an address that it may call. Optional.
	Divert  func(Diverted)
	allowed sync.Map // more of Outbound
	// Fleet is what the server hosts beside its own cluster; nil for nothing.
	Fleet Fleet
	// Hosted is set for a cluster that another server hosts.
	Hosted *Hosted
	// Serving is the port and its TLS.
	Serving *genericoptions.SecureServingOptions
	// AdvertiseAddress is the address at which the cluster reaches this server; nil to detect it.
	AdvertiseAddress net.IP
	// EndpointReconciler is whether that address is added to the endpoints of the Service kubernetes.
	EndpointReconciler string
	TLSNames           []string // more names for the generated serving certificate

	ServiceClusterIPRange string // one range, or one of each family
	ServiceNodePortRange  utilnet.PortRange
	RuntimeConfig         cliflag.ConfigurationMap
	EventTTL              time.Duration
	Controllers           []string                 // the controllers that run in this process
	ControllerSettings    *controllers.Settings    // nil for kube-controller-manager's defaults
	OtherControllers      []controllers.Controller // in addition to those of package controllers
	Scheduler             *controllers.Controller  // nil for none
	AllowPrivileged       bool                     // for the whole process: Pod validation reads a global

	// Agents returns the handler of AgentPath; nil serves none. Its argument returns a configuration for requests to this server as the user of a
	// request, and the audit id for these.
	Agents func(onBehalf func(context.Context) (*rest.Config, string, error)) http.Handler

	Console             bool // whether the web page is served
	ConsoleSignIn       console.SignInOptions
	ConsoleTry          bool   // whether users of the web page may have this machine try changes
	Program             string // the sqube that tries them; "" for none
	CORSAllowedOrigins  []string
	MaxInFlight         int
	MaxMutatingInFlight int
	RequestTimeout      time.Duration
	MinRequestTimeout   int           // in seconds
	LivezGracePeriod    time.Duration // while /livez assumes that the start will succeed
	ShutdownDelay       time.Duration // between becoming unready and draining
	ShutdownGracePeriod time.Duration
	MaxRequestBodyBytes int64
	SharedDatastore     bool // other servers may use the same database
	Encryption          encryption.Options
	SharedKeys          sharedkeys.Options
	ReplaceKeys         string // the fingerprint of keys that may be replaced
	KeysVary            bool   // from start to start, so any are right
	Access              *access.Options
	Aggregation         *aggregation.Options
	Admission           *admission.Options
	Audit               *audit.Options
	Metrics             *metrics.Options
	Transactions        *transactions.Options
	serviceRange        net.IPNet
	secondRange         net.IPNet // of the other IP family, or empty
	sealer              *sharedkeys.Sealer

	KubernetesServiceNodePort int // 0 for none
	Features                  *genericoptions.FeatureOptions
	// EmulationForwardCompatible and RuntimeConfigForwardCompatible serve APIs that are newer than the emulated version.
	EmulationForwardCompatible, RuntimeConfigForwardCompatible bool
	Coordination                                               leaderelection.LeaderElectionTimers
	Egress                                                     *genericoptions.EgressSelectorOptions
	Tracing                                                    *genericoptions.TracingOptions
	// SetLogLevel changes -v while the server runs; nil if that is not possible.
	SetLogLevel func(level string) (answer string, err error)
	// ShutdownSendRetryAfter makes the server respond with 429 to new requests until running ones have finished.
	ShutdownSendRetryAfter bool
	// DropConnections stops the server as soon as running requests have finished, without the second that idle HTTP/2 clients
	// otherwise have to switch to another server.
	DropConnections          bool
	ShutdownWatchTermination time.Duration // over which watches end; 0 for at once
	Kubelet                  kubeletclient.KubeletClientConfig
	MaxConnectionBytesPerSec int64    // into a pod or a node, through exec and the like; 0 for no limit
	HSTS                     []string // directives of Strict-Transport-Security
	ExternalHost             string   // at which clients reach the server, may have a port; "" for the advertised address
	GoawayChance             float64  // the probability that a request ends its HTTP/2 connection
	DeleteCollectionWorkers  int      // how many objects of a collection are deleted at once
	tls                      *tls.Config
	// Flags are all flags of the process, for the page /flagz, which hides the values of those annotated "classified". If nil,
	// the page does not exist.
	Flags *cliflag.NamedFlagSets
}

// NewOptions returns kube-apiserver's defaults, or kubeadm's where they differ.
func NewOptions() *Options {
	return &Options{
		DataDir:               "./data",
		Serving:               newServing(),
		EndpointReconciler:    leaseEndpoint,
		ServiceClusterIPRange: "10.0.0.0/24",
		ServiceNodePortRange:  kubeoptions.DefaultServiceNodePortRange,
		RuntimeConfig:         cliflag.ConfigurationMap{},
		AllowPrivileged:       true,
		EventTTL:              time.Hour,
		Controllers:           []string{controllers.API},
		Console:               true,
		ConsoleTry:            true,
		MaxInFlight:           400,
		MaxMutatingInFlight:   200,
		RequestTimeout:        time.Minute,
		MinRequestTimeout:     1800,
		ShutdownGracePeriod:   30 * time.Second,
		MaxRequestBodyBytes:   3 << 20,
		Access:                access.NewOptions(),
		Aggregation:           aggregation.NewOptions(),
		Admission:             admission.NewOptions(),
		Audit:                 audit.NewOptions(),
		Metrics:               metrics.NewOptions(),
		Transactions:          transactions.NewOptions(),

		Features:                &genericoptions.FeatureOptions{EnableProfiling: true, EnablePriorityAndFairness: true},
		Coordination:            leaderelection.LeaderElectionTimers{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second},
		Egress:                  genericoptions.NewEgressSelectorOptions(),
		Tracing:                 genericoptions.NewTracingOptions(),
		Kubelet:                 kubeletclient.KubeletClientConfig{Port: 10250, ReadOnlyPort: 10255, PreferredAddressTypes: slices.Clone(addressTypes)},
		DeleteCollectionWorkers: 1,
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
	KubeletFlags     = "Kubelets"
	LimitFlags       = "Limits"
	AccessFlags      = "Authentication and authorization"
	AggregationFlags = "Aggregation"
	AdmissionFlags   = "Admission"
	AuditFlags       = "Audit"
	MetricsFlags     = "Metrics"
	DebugFlags       = "Debugging"
)

// AddFlags adds all flags except those for the database and for logging, in sections.
func (o *Options) AddFlags(sections *cliflag.NamedFlagSets) {
	fs := sections.FlagSet(StateFlags)
	fs.StringVar(&o.DataDir, "data-dir", o.DataDir, "Folder for the server's files: keys in pki, admin.kubeconfig, and, unless --datastore is set, the SQLite database.")
	o.Encryption.AddFlags(fs)
	o.SharedKeys.AddFlags(fs)
	fs.StringVar(&o.ReplaceKeys, sharedkeys.ReplaceFlag, "", "Give the database's cluster this server's CA and service account key, although it has others. The value names those; it is in the error of the start that was refused because of them, so the flag may stay. Kubeconfigs and tokens from before become invalid.")

	fs = sections.FlagSet(ServingFlags)
	addServingFlags(fs, o.Serving)
	fs.IPVar(&o.AdvertiseAddress, "advertise-address", nil, "Address at which the cluster reaches this server. If unset, --bind-address, or an address of this machine.")
	fs.StringVar(&o.EndpointReconciler, "endpoint-reconciler-type", o.EndpointReconciler, "lease: the servers keep the endpoints of the Service kubernetes up to date with the servers that are alive. none: they leave these endpoints alone.")
	fs.StringSliceVar(&o.TLSNames, "tls-san", nil, "More DNS names and IP addresses of this server, such as a load balancer's. They are added to the certificate that the server issues if --tls-cert-file is unset.")
	fs.BoolVar(&o.Console, "console", o.Console, "Serve the console, a web page, at /console. What it shows, it asks the API for with the token of its user.")
	o.ConsoleSignIn.AddFlags(fs)
	fs.BoolVar(&o.ConsoleTry, "console-try", o.ConsoleTry, "Let those who may post /console/trials, which administrators may, try changes in the console: as sqube try does, in a process on this machine, one at a time, while 384 MiB of memory are free.")
	fs.StringSliceVar(&o.CORSAllowedOrigins, "cors-allowed-origins", nil, "Regular expressions for the origins from which browsers may send requests. They should begin with ^ or // and end with $ or :.")
	fs.StringSliceVar(&o.HSTS, "strict-transport-security-directives", nil, "Directives of the header Strict-Transport-Security, such as max-age=31536000,includeSubDomains,preload. If unset, the header is not sent.")
	fs.StringVar(&o.ExternalHost, "external-hostname", "", "Host name for the URLs in discovery, with a port if it is not --secure-port. If unset, --advertise-address.")
	fs.Float64Var(&o.GoawayChance, "goaway-chance", 0, "Probability that a request ends its HTTP/2 connection (GOAWAY), so that clients behind a load balancer spread over all servers. The maximum is 0.02; start with 0.001. Leave it at 0 without a load balancer.")

	fs = sections.FlagSet(ClusterFlags)
	fs.StringVar(&o.ServiceClusterIPRange, "service-cluster-ip-range", o.ServiceClusterIPRange, "CIDR for the cluster IPs of Services. For dual-stack, two CIDRs, one of each family, separated by a comma.")
	fs.Var(&o.ServiceNodePortRange, "service-node-port-range", "Ports for Services of type NodePort, including both ends of the range.")
	fs.IntVar(&o.KubernetesServiceNodePort, "kubernetes-service-node-port", 0, "Node port of the Service kubernetes, from --service-node-port-range. If 0, it has none.")
	fs.Var(&o.RuntimeConfig, "runtime-config", "API versions to turn on or off, as key=true or key=false. The key is group/version (v1 for the core group), group/version/resource, api/all, api/ga, api/beta or api/alpha.")
	fs.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "How long Events are kept.")
	addControllersFlag(fs, o)
	fs.BoolVar(&o.AllowPrivileged, "allow-privileged", o.AllowPrivileged, "Allow privileged containers, which CNI plugins, kube-proxy and CSI drivers need. Pod Security admission can restrict them by namespace.")

	addCoordinationFlags(fs, &o.Coordination)
	addOutboundFlags(fs, sections.FlagSet(DebugFlags), o.Egress, o.Tracing)

	fs = sections.FlagSet(LimitFlags)
	fs.IntVar(&o.MaxInFlight, "max-requests-inflight", o.MaxInFlight, "How many read requests may run at once. Further requests get 429 and have to be retried. 0 for no limit.")
	fs.IntVar(&o.MaxMutatingInFlight, "max-mutating-requests-inflight", o.MaxMutatingInFlight, "How many write requests may run at once. Further requests get 429 and have to be retried. 0 for no limit.")
	addFeatureFlags(fs, sections.FlagSet(DebugFlags), o.Features)
	o.Transactions.AddFlags(fs)
	fs.IntVar(&o.DeleteCollectionWorkers, "delete-collection-workers", o.DeleteCollectionWorkers, "How many objects are deleted at once when a collection is deleted.")
	fs.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout, "How long a request may take. Watches have --min-request-timeout instead.")
	fs.IntVar(&o.MinRequestTimeout, "min-request-timeout", o.MinRequestTimeout, "Minimum seconds before the server ends a watch, unless the client requests a shorter timeout. A watch runs up to twice as long.")
	fs.DurationVar(&o.LivezGracePeriod, "livez-grace-period", 0, "How long /livez assumes that the start will succeed.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", 0, "How long the server keeps serving after SIGTERM while /readyz fails, so that load balancers stop using it.")
	fs.BoolVar(&o.ShutdownSendRetryAfter, "shutdown-send-retry-after", false, "While the server stops, answer new requests with 429 and Retry-After until the running ones have finished. If false, the port is closed at once.")
	fs.DurationVar(&o.ShutdownWatchTermination, "shutdown-watch-termination-grace-period", 0, "Maximum time over which watches are ended, at least 200 a second, so that clients do not all reconnect to other servers at once. If 0, all watches end at once.")
	fs.DurationVar(&o.ShutdownGracePeriod, "shutdown-grace-period", o.ShutdownGracePeriod, "How long running requests may take to finish when the server stops, and then each part of the server. If a part takes longer, the process ends with an error that names it.")

	fs = sections.FlagSet(KubeletFlags)
	addKubeletFlags(fs, &o.Kubelet)
	fs.Int64Var(&o.MaxConnectionBytesPerSec, "max-connection-bytes-per-sec", 0, "How many bytes per second a connection to a pod or a node, such as exec or port-forward, may transfer. 0 for no limit.")
	o.Access.AddFlags(sections.FlagSet(AccessFlags))
	o.Admission.AddFlags(sections.FlagSet(AdmissionFlags))
	o.Aggregation.AddFlags(sections.FlagSet(AggregationFlags))
	o.Audit.AddFlags(sections.FlagSet(AuditFlags))
	o.Metrics.AddFlags(sections.FlagSet(MetricsFlags))
}

func addControllersFlag(fs *pflag.FlagSet, o *Options) {
	usage := "Controllers to run in this process. 'api' enables those that the API itself needs, '*' all that are on by default; both step aside while a kube-controller-manager, which runs them too, holds its Lease. 'foo' always enables the controller named 'foo', '-foo' disables it, and '-*' disables all.\nControllers of the API: " + strings.Join(controllers.Names(), ", ")
	var on, off []string
	for _, other := range o.OtherControllers {
		if other.Off {
			off = append(off, other.Name)
		} else {
			on = append(on, other.Name)
		}
	}
	if len(on) > 0 {
		usage += "\nOther controllers: " + strings.Join(on, ", ") + "\nDisabled-by-default controllers: " + strings.Join(off, ", ")
	}
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers, usage)
}

func (o *Options) minRequestTimeout() time.Duration {
	return time.Duration(o.MinRequestTimeout) * time.Second
}

// Complete checks the options and fills in those that follow from others. Errors name the flag and the values it accepts.
func (o *Options) Complete() error {
	errs := flagcheck.Problems{o.completeServing(), o.completeKubelet(), o.checkOutbound(), o.ConsoleSignIn.Validate(o.Access.TrustsIssuers())}
	errs.Unless(o.EndpointReconciler == leaseEndpoint || o.EndpointReconciler == noEndpoint, "--endpoint-reconciler-type %q must be lease or none", o.EndpointReconciler)
	for _, name := range o.TLSNames {
		err := pki.CheckName(name)
		errs.Unless(err == nil, "--tls-san: %w", err)
	}
	for i, text := range strings.Split(o.ServiceClusterIPRange, ",") {
		_, cidr, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text))
		switch {
		case err != nil || i > 1:
			errs.Unless(false, "--service-cluster-ip-range %q must be a CIDR such as 10.0.0.0/24, or one of each IP family, separated by a comma", o.ServiceClusterIPRange)
		case i == 0:
			o.serviceRange = *cidr
		case netutils.IsIPv6CIDR(cidr) == netutils.IsIPv6CIDR(&o.serviceRange):
			errs.Unless(false, "--service-cluster-ip-range %q must not have two ranges of one IP family", o.ServiceClusterIPRange)
		default:
			o.secondRange = *cidr
		}
	}
	for _, origin := range o.CORSAllowedOrigins {
		_, err := regexp.Compile(origin)
		errs.Unless(err == nil, "--cors-allowed-origins %q must be a regular expression: %w", origin, err)
	}
	if versions, err := resources.ParseRuntimeConfig(o.RuntimeConfig); err != nil {
		errs = append(errs, err)
	} else if err := o.checkCoordination(versions); err != nil {
		errs = append(errs, err)
	} else if o.Features.EnablePriorityAndFairness && !versions.ResourceEnabled(flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas")) {
		errs = append(errs, errors.New("--runtime-config must leave flowcontrol.apiserver.k8s.io/v1 on, or --enable-priority-and-fairness must be false"))
	}
	errs.Unless(o.GoawayChance >= 0 && o.GoawayChance <= maxGoawayChance, "--goaway-chance %v must be between 0 and %v", o.GoawayChance, maxGoawayChance)
	for _, directive := range o.HSTS {
		name, age, _ := strings.Cut(directive, "=")
		valid := directive == "includeSubDomains" || directive == "preload" || name == "max-age" && age != ""
		errs.Unless(valid, "--strict-transport-security-directives %q must be max-age=SECONDS, includeSubDomains or preload", directive)
	}
	port := o.KubernetesServiceNodePort
	errs.Unless(port == 0 || o.ServiceNodePortRange.Contains(port), "--kubernetes-service-node-port %d must be 0 or in --service-node-port-range %s", port, &o.ServiceNodePortRange)
	errs.Unless(o.DeleteCollectionWorkers >= 1, "--delete-collection-workers %d must be 1 or more", o.DeleteCollectionWorkers)
	for flag, d := range map[string]time.Duration{"request-timeout": o.RequestTimeout, "min-request-timeout": o.minRequestTimeout()} {
		errs.Unless(d > 0, "--%s must be more than 0", flag)
	}
	for flag, number := range map[string]int64{
		"event-ttl": int64(o.EventTTL), "livez-grace-period": int64(o.LivezGracePeriod), "shutdown-delay-duration": int64(o.ShutdownDelay),
		"shutdown-watch-termination-grace-period": int64(o.ShutdownWatchTermination), "max-connection-bytes-per-sec": o.MaxConnectionBytesPerSec,
		"max-requests-inflight": int64(o.MaxInFlight), "max-mutating-requests-inflight": int64(o.MaxMutatingInFlight),
	} {
		errs.Unless(number >= 0, "--%s must be 0 or more", flag)
	}
	err := controllers.Validate(o.Controllers, o.OtherControllers)
	errs.Unless(err == nil, "--controllers: %w", err)
	for _, err := range o.Metrics.Validate() {
		errs.Unless(false, "--show-hidden-metrics-for-version and --allow-metric-labels: %w", err)
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, o.checkServiceRange(), o.checkAdvertised())
	}
	o.sealer, err = o.SharedKeys.Load()
	errs = append(errs, err)
	return errors.Join(append(errs, o.Encryption.Validate(), o.Access.Validate(), o.Admission.Validate(), o.Aggregation.Validate(), o.Audit.Validate(), o.Transactions.Validate())...)
}

// maxGoawayChance is upstream's limit.
const maxGoawayChance = 0.02

// minServiceAddresses is the smallest number of cluster IPs, like kube-apiserver's.
const minServiceAddresses = 8

// maxBitmapBits is kube-apiserver's limit of the variable bits of a range whose allocated addresses are in a bitmap.
const maxBitmapBits = 20

// checkServiceRange checks the first range, which the address of the Service kubernetes comes from. The Service's endpoint is
// the server's own address, which must have the same IP family.
func (o *Options) checkServiceRange() error {
	if netutils.RangeSize(&o.serviceRange) < minServiceAddresses {
		return fmt.Errorf("--service-cluster-ip-range %s must hold at least %d addresses", &o.serviceRange, minServiceAddresses)
	}
	for _, cidr := range []net.IPNet{o.serviceRange, o.secondRange} {
		if ones, bits := cidr.Mask.Size(); resources.AddressBitmaps() && bits-ones > maxBitmapBits {
			return fmt.Errorf("--service-cluster-ip-range %s must be /%d or smaller unless --feature-gates=DisableAllocatorDualWrite=true, the default", &cidr, bits-maxBitmapBits)
		}
	}
	address := o.advertised()
	if address != nil && netutils.IsIPv6(address) != netutils.IsIPv6CIDR(&o.serviceRange) {
		return fmt.Errorf("--service-cluster-ip-range must begin with a range of the same IP family as the server's address %s; --advertise-address sets another address", address)
	}
	return nil
}

// advertised returns the address at which the cluster reaches this server, nil if there is none.
func (o *Options) advertised() net.IP {
	if o.AdvertiseAddress != nil {
		return o.AdvertiseAddress
	}
	return bootstrap.AdvertiseAddress(o.Serving.BindAddress)
}

// checkAdvertised checks that the server's address may be an endpoint of the Service kubernetes.
func (o *Options) checkAdvertised() error {
	address := o.advertised()
	if address == nil || o.EndpointReconciler == noEndpoint {
		return nil
	}
	if reconcilers.NewLeaseEndpointReconciler(reconcilers.EndpointsAdapter{}, nil).ValidateIP(address) != nil {
		return fmt.Errorf("the server's address %s can't be in the endpoints of the Service kubernetes, since it is unspecified, or only valid on this machine or its link: --advertise-address sets another address, --endpoint-reconciler-type=none adds none", address)
	}
	return nil
}

// URL is the server's URL for clients on this machine.
func (o *Options) URL() string {
	host := o.Serving.BindAddress
	if host == nil || host.IsUnspecified() {
		host = net.IPv4(127, 0, 0, 1)
	}
	return "https://" + net.JoinHostPort(host.String(), strconv.Itoa(o.Serving.BindPort))
}
