package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	systemclasses "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	"k8s.io/kubernetes/pkg/controlplane/controller/systemnamespaces"
	"k8s.io/kubernetes/pkg/features"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
)

// Config is what the hooks need from the server.
type Config struct {
	// Loopback reaches this server as a member of system:masters.
	Loopback *rest.Config
	// Informers are the server's shared informers. New registers with them, so start them after New.
	Informers informers.SharedInformerFactory
	// ServerID identifies this server in the cluster; see ServerID. It is the name of its Lease.
	ServerID string
	// KubeletClient is the user in the certificate that this server presents to kubelets.
	KubeletClient string
	// RBAC means that the authorizer RBAC is in use, on Informers.
	RBAC bool
	// Stored means that the default objects have just been stored: see Defaults.
	Stored bool
	// Services is the address space of Services.
	Services Services
	// Endpoint is where this server is reached.
	Endpoint Endpoint
	// Authentication is published for extension API servers: the CA of client certificates and the settings for front
	// proxies.
	Authentication clusterauthenticationtrust.ClusterAuthenticationInfo
	// InMemory is that of pki.Options.
	InMemory bool
	// Seldom is the interval of what is repeated, such as putting right what clients have changed; 0 for the usual intervals.
	Seldom time.Duration
}

// Services is the address space of Services.
type Services struct {
	// IPRange is --service-cluster-ip-range; its first address is that of Service default/kubernetes.
	IPRange net.IPNet
	// SecondaryIPRange is the second range of a dual-stack cluster, zero without one.
	SecondaryIPRange net.IPNet
	// NodePort is that of Service default/kubernetes, 0 for none.
	NodePort int
	// Repair keeps allocated addresses and ports in step with the Services until ctx ends, or until it can't continue. It calls ready
	// when the first pass is complete.
	Repair func(ctx context.Context, ready func())
}

// Endpoint is where this server is reached from the cluster's network.
type Endpoint struct {
	// Address is the advertised address; see AdvertiseAddress. Nil publishes no endpoint.
	Address net.IP
	// Port is the secure port.
	Port int
	// Lease is how long the address stays published after this server has stopped renewing it. Zero means that there is only one
	// server: nothing is renewed, and other addresses are removed.
	Lease time.Duration
}

// Bootstrap runs the hooks. Make it with New.
type Bootstrap struct{ hooks []*hook }

// New prepares the hooks. It sends no requests. It returns an error if no client can be built from the configuration, or if a
// service address range has no usable address.
func New(c Config) (*Bootstrap, error) {
	config := rest.AddUserAgent(rest.CopyConfig(c.Loopback), "bootstrap")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client that bootstraps the cluster: %w", err)
	}
	namespaces := namespacesHook(client, c.Informers.Core().V1().Namespaces())
	beforeService := []*hook{namespaces}
	if utilfeature.DefaultFeatureGate.Enabled(features.MultiCIDRServiceAllocator) {
		beforeService = append(beforeService, serviceCIDRHook(client, c))
	}
	kubernetesService, err := kubernetesServiceHook(client, c, beforeService...)
	if err != nil {
		return nil, err
	}
	var authorizer rbacinformers.Interface
	if c.RBAC {
		authorizer = c.Informers.Rbac().V1()
	}
	hooks := append(beforeService,
		rbacHook(func(ctx context.Context) (kubernetes.Interface, error) {
			return kubernetes.NewForConfig(within(ctx, config))
		}, c.KubeletClient, authorizer),
		priorityClassesHook(client),
		flowControlHook(client, cmp.Or(c.Seldom, flowControlInterval)),
		serviceRepairHook(c.Services.Repair),
		kubernetesService,
		authenticationHook(client, c, namespaces),
		identityHook(client, c.ServerID, cmp.Or(c.Seldom, identityRenewal), namespaces),
		identityCollectorHook(client, cmp.Or(c.Seldom*renewals, identityDuration), namespaces),
		legacyTokenHook(client, cmp.Or(c.Seldom, legacyTokenInterval), namespaces),
	)
	for _, h := range hooks {
		if c.Stored && h.stored != nil {
			h.ensure = h.stored
		}
		h.done, h.ended = make(chan struct{}), make(chan struct{})
	}
	return &Bootstrap{hooks}, nil
}

// Checks returns one check per hook, each named poststarthook/NAME, for /readyz, /livez and /healthz.
func (b *Bootstrap) Checks() []healthz.HealthChecker {
	checks := make([]healthz.HealthChecker, 0, len(b.hooks))
	for _, h := range b.hooks {
		checks = append(checks, h.health())
	}
	return checks
}

// Run runs the hooks until ctx ends, then returns nil. If a hook fails permanently, it returns the error, and the server must
// stop. When stopping is closed, the server's address is withdrawn and its Lease deleted; see Withdrawn. The loopback client
// must work until Run has returned. Run must be called once.
func (b *Bootstrap) Run(ctx context.Context, stopping <-chan struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	announcing, withdraw := context.WithCancel(ctx)
	defer withdraw()
	go func() {
		select {
		case <-stopping:
			withdraw()
		case <-ctx.Done():
		}
	}()
	for _, h := range b.hooks {
		ctx := ctx
		if h.announces {
			ctx = announcing
		}
		group.Go(func() error { return h.run(ctx) })
	}
	return group.Wait()
}

// Withdrawn returns when the server's address has been withdrawn and its Lease deleted, after stopping was closed, or when ctx
// ends.
func (b *Bootstrap) Withdrawn(ctx context.Context) {
	for _, h := range b.hooks {
		if !h.announces {
			continue
		}
		select {
		case <-h.ended:
		case <-ctx.Done():
			return
		}
	}
}

// Wait returns nil when all hooks are done, or ctx's error if it ends first.
func (b *Bootstrap) Wait(ctx context.Context) error {
	for _, h := range b.hooks {
		select {
		case <-h.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", h.name, ctx.Err())
		}
	}
	return nil
}

// notServed reports whether a list failed because --runtime-config turned its group off. A group that is not served needs no
// objects; upstream installs no hook for it.
func notServed(err error) bool { return apierrors.IsNotFound(err) }

type object[T any] interface {
	*T
	metav1.Object
}

// byName returns the items of a list by name.
func byName[T any, P object[T]](items []T) map[string]P {
	found := make(map[string]P, len(items))
	for i := range items {
		item := P(&items[i])
		found[item.GetName()] = item
	}
	return found
}

// created returns the error of a create, or nil for "already exists": another server may have been faster.
func created(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

var systemNamespaces = []string{
	metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
}

// namespacesHook creates the system namespaces, then upstream's controller recreates those that are deleted. Unlike upstream,
// readiness waits for them, since other hooks write into them.
func namespacesHook(client kubernetes.Interface, informer coreinformers.NamespaceInformer) *hook {
	controller := systemnamespaces.NewController(systemNamespaces, client, informer)
	return &hook{
		name: "start-system-namespaces-controller",
		ensure: func(ctx context.Context) error {
			return each(ctx, systemNamespaces, func(ctx context.Context, name string) error {
				return ensureNamespace(ctx, client, name)
			})
		},
		stored: nothing,
		serve:  readyAtOnce(func(ctx context.Context) { controller.Run(ctx.Done()) }),
	}
}

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		err = created(err)
	}
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// priorityClassesHook creates the two priority classes of nodes and system components.
func priorityClassesHook(client kubernetes.Interface) *hook {
	classes := client.SchedulingV1().PriorityClasses()
	return &hook{
		name: schedulingrest.PostStartHookName,
		ensure: func(ctx context.Context) error {
			list, err := classes.List(ctx, metav1.ListOptions{})
			if notServed(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("list priority classes: %w", err)
			}
			present := byName(list.Items)
			return each(ctx, systemclasses.SystemPriorityClasses(), func(ctx context.Context, class *schedulingv1.PriorityClass) error {
				if present[class.Name] != nil {
					return nil
				}
				if _, err := classes.Create(ctx, class, metav1.CreateOptions{}); created(err) != nil {
					return fmt.Errorf("create priority class %s: %w", class.Name, err)
				}
				return nil
			})
		},
		stored: nothing,
	}
}
