package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Config is what the controllers need of the server.
type Config struct {
	// Loopback reaches this server as a member of system:masters.
	Loopback *rest.Config
	// Informers are the server's shared ones. Run adds informers to them and starts those.
	Informers informers.SharedInformerFactory
	// InformersStop ends the shared informers. It belongs to the server, not to one call of Run: a shared informer that
	// has stopped cannot be started again.
	InformersStop <-chan struct{}
	// Discovery tells of changes of what this server serves, itself or through other servers.
	Discovery interface{ AddInvalidationCallback(func()) }
	// RootCA is the PEM bundle that verifies this server, published in every namespace.
	RootCA []byte
	// ServiceAccountKey signs the tokens in token Secrets, as a private key of crypto/ecdsa or crypto/rsa. Nil leaves
	// such Secrets empty.
	ServiceAccountKey any
	// Track notes that something runs, under a name, until the function that it returns is called.
	Track func(name string) (ended func())
}

// controller is one of upstream's controllers.
type controller struct {
	// name is kube-controller-manager's, without "-controller"; requests have it in their user agent.
	name string
	// build makes the controller and registers its event handlers. It returns what runs until the context ends.
	build func(ctx context.Context, e *environment, c clients) (run func(context.Context), err error)
	// needs is a resource that --runtime-config may have switched off, and without which there is nothing to control.
	needs schema.GroupVersionResource
}

var all = []controller{
	{name: "namespace", build: buildNamespace},
	{name: "garbage-collector", build: buildGarbageCollector},
	{name: "serviceaccount", build: buildServiceAccount},
	{name: "serviceaccount-token", build: buildServiceAccountToken},
	{name: "legacy-serviceaccount-token-cleaner", build: buildLegacyTokenCleaner},
	{name: "root-ca-certificate-publisher", build: buildRootCAPublisher},
	{name: "resourcequota", build: buildResourceQuota},
	{name: "clusterrole-aggregation", build: buildClusterRoleAggregation, needs: rbacv1.SchemeGroupVersion.WithResource("clusterroles")},
	{name: "validatingadmissionpolicy-status", build: buildPolicyStatus,
		needs: admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")},
	{name: "service-cidr", build: buildServiceCIDR, needs: networkingv1.SchemeGroupVersion.WithResource("servicecidrs")},
	{name: "storage-version-migrator", build: buildStorageVersionMigrator,
		needs: storagemigrationv1beta1.SchemeGroupVersion.WithResource("storageversionmigrations")},
	{name: "persistentvolumeclaim-protection", build: buildClaimProtection},
	{name: "persistentvolume-protection", build: buildVolumeProtection},
	{name: "volumeattributesclass-protection", build: buildAttributesClassProtection,
		needs: storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses")},
}

// Run builds the controllers and runs them until ctx ends; then it returns nil, with everything that it started at rest
// and no event handler of its own left on the shared informers. It may be called again after that: a replica that loses
// and regains leadership does so. It returns an error when a controller cannot be built, for which the server must be
// answering: discovery is read. The loopback client must work until Run has returned.
func Run(ctx context.Context, c Config) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := newEnvironment(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()

	loops := map[string]func(context.Context){}
	for _, controller := range all {
		loop, err := controller.prepare(ctx, e)
		if err != nil {
			return fmt.Errorf("controller %s: %w", controller.name, err)
		}
		if loop != nil {
			loops[controller.name+" controller"] = loop
		}
	}
	c.Discovery.AddInvalidationCallback(e.resources.notify)
	e.start()

	var running sync.WaitGroup
	for name, loop := range loops {
		ended := c.Track(name)
		running.Go(func() {
			defer ended()
			loop(ctx)
		})
	}
	running.Wait()
	if ctx.Err() == nil {
		return errors.New("all controllers ended by themselves; the log says why")
	}
	return nil
}

// prepare builds the controller. It returns nil when there is nothing for it to do.
func (c controller) prepare(ctx context.Context, e *environment) (func(context.Context), error) {
	clients, err := newClients(e.config.Loopback, c.name)
	if err != nil {
		return nil, err
	}
	if !c.needs.Empty() {
		served, err := discovery.IsResourceEnabled(clients.Discovery(), c.needs)
		if err != nil {
			return nil, fmt.Errorf("see whether %s is served: %w", c.needs.GroupResource(), err)
		}
		if !served {
			return nil, nil
		}
	}
	return c.build(ctx, e, clients)
}

// clients is how a controller reaches the server: its user agent tells it apart in the audit log.
type clients struct {
	config *rest.Config
	kubernetes.Interface
}

func newClients(loopback *rest.Config, name string) (clients, error) {
	config := rest.AddUserAgent(rest.CopyConfig(loopback), name+"-controller")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("make its client: %w", err)
	}
	return clients{config, client}, nil
}
