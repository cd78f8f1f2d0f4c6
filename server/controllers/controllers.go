package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/informer"
)

// Config is what the controllers need from the server.
type Config struct {
	// Selection selects the controllers that run; see Validate.
	Selection []string
	// Others are controllers of other packages, which run along with those of this one if Selection includes them.
	Others []Controller
	// Scheduler runs under the same Lease, while no separate kube-scheduler is active. Nil for none.
	Scheduler *Controller
	// Settings configures the controllers of this package.
	Settings *Settings
	// Cluster is for controllers that set up nodes.
	Cluster Cluster
	// Loopback reaches this server as a member of system:masters.
	Loopback *rest.Config
	// LoopbackOf reaches it as another user; see package loopback.
	LoopbackOf func(name string, groups ...string) *rest.Config
	// Informers are the server's shared informers. Run adds informers and starts them.
	Informers informers.SharedInformerFactory
	// InformersStop stops the shared informers. It belongs to the server, not to one call of Run: a stopped shared informer can't
	// be started again.
	InformersStop <-chan struct{}
	// Discovery reports changes of the resources that this server and aggregated servers serve.
	Discovery interface{ AddInvalidationCallback(func()) }
	// Empty reports whether a resource has no object in a namespace, as of now. It reports false also if it can't know.
	Empty func(context.Context, schema.GroupVersionResource, string) (bool, error)
	// Sleep is for controllers that have nothing to do while a resource has no objects: it has wake called in a goroutine, once, when the
	// resource may have some, and returns true. The caller may cancel that. If it may have some already, Sleep returns false, and wake may
	// still be called.
	Sleep func(ctx context.Context, resource schema.GroupVersionResource, wake func()) (cancel func(), asleep bool)
	// Written is closed once a client other than this server may have written anything. Nil means that one has.
	Written <-chan struct{}
	// Seldom is how often discovery is read without a change; 0 for five minutes.
	Seldom time.Duration
	// Metadata returns how informers read the metadata of a resource's objects. It returns nil for one that is not stored here, such as that
	// of an aggregated API, which they read by requests.
	Metadata func(schema.GroupVersionResource) informer.Source
	// Selected returns how informers read the objects of a resource that a field selector matches, nil for one that is not stored here.
	Selected func(schema.GroupVersionResource, fields.Selector) informer.Source
	// Feed feeds the informers.
	Feed *informer.Feed
	// RootCA is the PEM bundle that verifies this server, published in every namespace.
	RootCA []byte
	// ServiceAccountKey is the private key (crypto/ecdsa or crypto/rsa) that signs the tokens in token Secrets. Nil leaves such
	// Secrets empty.
	ServiceAccountKey any
	// Track records that the part of that name runs, until ended is called.
	Track func(name string) (ended func())

	resources *resourceChanges
}

// controller is one of upstream's controllers.
type controller struct {
	// name is kube-controller-manager's, without "-controller". It is in the user agent of requests.
	name string
	// account is the service account as which it acts. If empty, the controller acts as kube-controller-manager.
	account string
	// other means that it is from another package, and off that it runs only if it is selected by name.
	other, off bool
	// build makes the controller and registers its event handlers. run runs until the context ends.
	build func(ctx context.Context, s *runState, c clients) (run func(context.Context), err error)
	// aliases are its names in kube-controller-manager before 1.28.
	aliases []string
	// uses is the name of another controller that must run too.
	uses string
	// needs is a resource without which the controller has nothing to do. --runtime-config may have turned it off.
	needs schema.GroupVersionResource
	// awaits are resources without whose objects the controller has nothing to do. It is built when one of them has one.
	awaits []schema.GroupVersionResource
	// awaitsClients means that it has nothing to do before Config.Written.
	awaitsClients bool
}

// of returns its arguments.
func of(resources ...schema.GroupVersionResource) []schema.GroupVersionResource { return resources }

const garbageCollector = "garbage-collector"

// all are the controllers of this package. kube-controller-manager has each of them too.
var all = []controller{
	{name: "namespace", account: "namespace-controller", aliases: []string{"namespace"}, build: buildNamespace, awaitsClients: true},
	{name: garbageCollector, account: "generic-garbage-collector", aliases: []string{"garbagecollector"}, build: buildGarbageCollector, awaitsClients: true},
	{name: "serviceaccount", account: "service-account-controller", aliases: []string{"serviceaccount"}, build: buildServiceAccount},
	{name: "serviceaccount-token", aliases: []string{"serviceaccount-token"}, build: buildServiceAccountToken,
		awaits: of(corev1.SchemeGroupVersion.WithResource("secrets"))},
	{name: "legacy-serviceaccount-token-cleaner", account: "legacy-service-account-token-cleaner",
		aliases: []string{"legacy-service-account-token-cleaner"}, build: buildLegacyTokenCleaner,
		awaits: of(corev1.SchemeGroupVersion.WithResource("secrets"))},
	{name: "root-ca-certificate-publisher", account: "root-ca-cert-publisher",
		aliases: []string{"root-ca-cert-publisher"}, build: buildRootCAPublisher},
	{name: "resourcequota", account: "resourcequota-controller", aliases: []string{"resourcequota"}, build: buildResourceQuota,
		awaits: of(corev1.SchemeGroupVersion.WithResource("resourcequotas"))},
	{name: "clusterrole-aggregation", account: "clusterrole-aggregation-controller",
		aliases: []string{"clusterrole-aggregation"}, build: buildClusterRoleAggregation,
		needs: rbacv1.SchemeGroupVersion.WithResource("clusterroles")},
	{name: "validatingadmissionpolicy-status", account: "validatingadmissionpolicy-status-controller", build: buildPolicyStatus,
		needs:  admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"),
		awaits: of(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"))},
	{name: "service-cidr", account: "service-cidrs-controller", build: buildServiceCIDR,
		needs: networkingv1.SchemeGroupVersion.WithResource("servicecidrs")},
	{name: "storage-version-migrator", account: "storage-version-migrator-controller", aliases: []string{"svm"}, uses: garbageCollector, build: buildStorageVersionMigrator,
		needs:  storagemigrationv1.SchemeGroupVersion.WithResource("storageversionmigrations"),
		awaits: of(storagemigrationv1.SchemeGroupVersion.WithResource("storageversionmigrations"))},
	{name: "persistentvolumeclaim-protection", account: "pvc-protection-controller", aliases: []string{"pvc-protection"}, build: buildClaimProtection,
		awaits: of(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"))},
	{name: "persistentvolume-protection", account: "pv-protection-controller", aliases: []string{"pv-protection"}, build: buildVolumeProtection,
		awaits: of(corev1.SchemeGroupVersion.WithResource("persistentvolumes"))},
	{name: "volumeattributesclass-protection", account: "volumeattributesclass-protection-controller", build: buildAttributesClassProtection,
		needs:  storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses"),
		awaits: of(storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses"))},
}

// Run runs the selected controllers, and the scheduler if there is one, until ctx ends. It then returns nil, when everything that
// it started has stopped and its event handlers are removed from the shared informers. It may be called again after that, such as
// when a replica loses and regains leadership. While a kube-controller-manager is active, which runs all controllers, only those
// that are selected by name run here. The scheduler does not run while a kube-scheduler is active.
//
// It returns an error if a controller can't be built. Building reads discovery, so the server must be serving. The loopback
// client must work until Run has returned.
func Run(ctx context.Context, c Config) error {
	c.resources = &resourceChanges{}
	c.Discovery.AddInvalidationCallback(c.resources.notify)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		known := c.known()
		return runBeside(ctx, c, managerProgram, choose(known, c.Selection, byWildcard), choose(known, c.Selection, named))
	})
	if c.Scheduler != nil {
		group.Go(func() error {
			return runBeside(ctx, c, schedulerProgram, []controller{c.Scheduler.internal()}, nil)
		})
	}
	return group.Wait()
}

// runBeside runs the chosen controllers, or only the always ones while the program is active.
func runBeside(ctx context.Context, c Config, program string, chosen, always []controller) error {
	if len(chosen) == len(always) {
		return run(ctx, c, chosen)
	}
	clients, err := newClients(c.Loopback, "leader-election")
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	holders := followProgram(following, c, clients, program)
	defer func() {
		stop()
		for range holders { // until it has stopped
		}
	}()
	holder, ok := <-holders
	for before := ""; ok; {
		logHandover(program, before, holder)
		before = holder
		present := chosen
		if holder != "" {
			present = always
		}
		if holder, ok, err = runUntil(ctx, c, present, holder, holders); err != nil {
			return err
		}
	}
	return nil
}

func logHandover(program, before, holder string) {
	switch {
	case before == "" && holder != "" && program == schedulerProgram:
		slog.Info("a kube-scheduler is active: the scheduler here has stopped", "holder", holder)
	case before != "" && holder == "" && program == schedulerProgram:
		slog.Info("the kube-scheduler is gone: the scheduler here runs again", "holder", before)
	case before == "" && holder != "":
		slog.Info("a kube-controller-manager is active: the controllers here have stopped, except those that --controllers names", "holder", holder)
	case before != "" && holder == "":
		slog.Info("the kube-controller-manager is gone: its controllers run here again", "holder", before)
	}
}

// runUntil runs controllers until the Lease gets a holder, or loses it. It returns the last holder, and false if ctx has ended.
func runUntil(ctx context.Context, c Config, present []controller, was string, holders <-chan string) (holder string, ok bool, err error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(running, c, present) }()
	for holder, ok = was, true; ok && (holder == "") == (was == ""); {
		select {
		case err := <-ended:
			return "", false, err
		case holder, ok = <-holders:
		}
	}
	stop()
	return holder, ok, <-ended
}

// run is Run for the given controllers.
func run(ctx context.Context, c Config, controllers []controller) (err error) {
	if len(controllers) == 0 {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := newRunState(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	if !slices.ContainsFunc(controllers, func(c controller) bool { return c.name == garbageCollector }) {
		close(s.collector.made)
	}
	var running sync.WaitGroup
	failed := make(chan error, len(controllers)+1)
	first := make(chan struct{}) // closed when the first part is built, whose informers of whole objects the others share
	groups := inGroups(controllers)
	parts, leaders := make([]*runState, len(groups)), make([]controller, len(groups))
	for i, group := range groups {
		parts[i] = s.part()
		if len(group) > 0 { // the first one has those that wait for nothing, which may be none
			leaders[i] = group[0]
		}
	}
	start := func(i int, built func()) {
		running.Go(func() {
			if err := parts[i].run(ctx, groups[i], built); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	start(0, func() { close(first) })
	running.Go(func() {
		startNeeded(ctx, first, leaders[1:], c, func(i int) { start(i+1, func() {}) })
	})
	if slices.ContainsFunc(controllers, func(c controller) bool { return c.other }) {
		changed, ended := s.resources.subscribe(ctx), c.Track("discovery of kinds")
		running.Go(func() {
			defer ended()
			again(ctx, changed, func(ctx context.Context) { // the garbage collector does this too, if it runs
				s.mapper.Reset()
				<-ctx.Done()
			})
		})
	}
	running.Wait()
	if ctx.Err() == nil {
		return errors.New("all controllers have stopped by themselves: see the log")
	}
	close(failed)
	return <-failed
}

// title is the name of the controller in the log and in errors.
func (c controller) title() string {
	if c.name == schedulerProgram {
		return "scheduler"
	}
	return c.name + " controller"
}

// prepare builds the controller. It returns nil if the controller has nothing to do.
func (c controller) prepare(ctx context.Context, s *runState) (func(context.Context), error) {
	if c.uses == garbageCollector && s.collector.graph(ctx) == nil {
		slog.Info("a controller does not run, because one that it needs does not run", "controller", c.fullName(), "needs", c.uses+suffix)
		return nil, nil
	}
	if !c.needs.Empty() {
		served, err := discovery.IsResourceEnabled(s.discovery, c.needs)
		if err != nil {
			return nil, fmt.Errorf("check whether %s is served: %w", c.needs.GroupResource(), err)
		}
		if !served {
			return nil, nil
		}
	}
	clients, err := newClients(s.config.as(c.account), c.name)
	if err != nil {
		return nil, err
	}
	return c.build(ctx, s, clients)
}

// clients are the clients of one controller, which has its own user agent in the audit log.
type clients struct {
	config *rest.Config
	kubernetes.Interface
	metadata metadata.Interface
}

func newClients(loopback *rest.Config, name string) (clients, error) {
	config := rest.AddUserAgent(rest.CopyConfig(loopback), name+suffix)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("make its client: %w", err)
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("make its client for metadata: %w", err)
	}
	return clients{config, client, metadataClient}, nil
}
