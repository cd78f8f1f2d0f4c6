package controllers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	validating "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	managerv1alpha1 "k8s.io/kube-controller-manager/config/v1alpha1"
	managerconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	managerscheme "k8s.io/kubernetes/pkg/controller/apis/config/scheme"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"
	"k8s.io/kubernetes/pkg/controller/storageversionmigrator"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	"k8s.io/kubernetes/pkg/controller/volume/vacprotection"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/utils/clock"
)

// oneWorker runs a controller with one worker.
func oneWorker[C interface{ Run(context.Context, int) }](controller C, err error) (func(context.Context), error) {
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

// together runs functions at the same time, and returns when all of them have returned.
func together(runs ...func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		var running sync.WaitGroup
		for _, run := range runs {
			running.Go(func() { run(ctx) })
		}
		running.Wait()
	}
}

// buildNamespace builds the controller that empties namespaces. It starts five seconds after a namespace's deletion, as
// upstream's does, so that every replica's admission has seen it.
func buildNamespace(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	settings := s.config.Settings.NamespaceController
	controller := namespace.NewNamespaceController(ctx, c, contents{c.metadata, s.config.Empty, s.config.stored, s.discovery}, s.discovery.ServerPreferredNamespacedResources,
		s.shared.Core().V1().Namespaces(), settings.NamespaceSyncPeriod.Duration, corev1.FinalizerKubernetes)
	return func(ctx context.Context) { controller.Run(ctx, int(settings.ConcurrentNamespaceSyncs)) }, nil
}

// monitorSyncTimeout is how long the collector waits for all its informers, which it calls monitors, before it starts.
const monitorSyncTimeout = 30 * time.Second

// buildGarbageCollector builds the controller that deletes objects whose owners are gone, and carries out foreground and orphan
// deletion.
func buildGarbageCollector(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	defer close(s.collector.made)
	settings := s.config.Settings.GarbageCollectorController
	if !settings.EnableGarbageCollector {
		return nil, nil
	}
	collector, err := garbagecollector.NewGarbageCollector(ctx, c, c.metadata, s.mapper,
		s.config.ignoredResources(), s.metadata, s.started)
	if err != nil {
		return nil, err
	}
	s.collector.builder = collector.GetDependencyGraphBuilder()
	changed := s.resources.subscribe(ctx)
	return together(
		func(ctx context.Context) { collector.Run(ctx, int(settings.ConcurrentGCSyncs), monitorSyncTimeout) },
		func(ctx context.Context) {
			again(ctx, changed, func(ctx context.Context) { collector.Sync(ctx, s.discovery, cmp.Or(s.config.Seldom, resourcesPeriod)) })
		},
	), nil
}

var tokenSecrets = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))

// buildServiceAccount builds the controller that creates ServiceAccount default in every namespace.
func buildServiceAccount(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	return oneWorker(serviceaccountcontroller.NewServiceAccountsController(klog.FromContext(ctx),
		s.shared.Core().V1().ServiceAccounts(), s.shared.Core().V1().Namespaces(), c,
		serviceaccountcontroller.DefaultServiceAccountsControllerOptions()))
}

// buildServiceAccountToken builds the controller that fills in token Secrets, unless there is no key to sign with.
func buildServiceAccountToken(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	if s.config.ServiceAccountKey == nil {
		return nil, nil
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, s.config.ServiceAccountKey)
	if err != nil {
		return nil, fmt.Errorf("sign with the service account key: %w", err)
	}
	controller, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx),
		s.shared.Core().V1().ServiceAccounts(), s.selected(tokenSecrets).Core().V1().Secrets(), c,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: s.config.RootCA})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		controller.Run(ctx, int(s.config.Settings.SAController.ConcurrentSATokenSyncs))
	}, nil
}

// buildLegacyTokenCleaner builds the controller that removes unused token Secrets.
func buildLegacyTokenCleaner(_ context.Context, s *runState, c clients) (func(context.Context), error) {
	controller, err := serviceaccountcontroller.NewLegacySATokenCleaner(
		s.shared.Core().V1().ServiceAccounts(), s.selected(tokenSecrets).Core().V1().Secrets(), s.shared.Core().V1().Pods(),
		c, clock.RealClock{}, serviceaccountcontroller.LegacySATokenCleanerOptions{
			CleanUpPeriod: s.config.Settings.LegacySATokenCleaner.CleanUpPeriod.Duration,
			SyncInterval:  serviceaccountcontroller.DefaultCleanerSyncInterval,
		})
	if err != nil {
		return nil, err
	}
	return controller.Run, nil
}

// buildRootCAPublisher builds the controller that puts the server's CA into every namespace, where Pods mount it.
func buildRootCAPublisher(_ context.Context, s *runState, c clients) (func(context.Context), error) {
	published := fields.OneTermEqualSelector(metav1.ObjectNameField, rootcacertpublisher.RootCACertConfigMapName)
	return oneWorker(rootcacertpublisher.NewPublisher(
		s.selected(published).Core().V1().ConfigMaps(), s.shared.Core().V1().Namespaces(), c, s.config.RootCA))
}

// buildResourceQuota builds the controller that counts what quotas limit. (Admission rejects requests that exceed them.)
func buildResourceQuota(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	settings := s.config.Settings.ResourceQuotaController
	informers := quotaInformers{s.metadata}
	lister := generic.ListerFuncForResourceFunc(informers.ForResource)
	configuration, err := quotainstall.NewQuotaConfigurationForControllers(lister, s.shared)
	if err != nil {
		return nil, err
	}
	discover := s.discovery.ServerPreferredNamespacedResources
	quota, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               c.CoreV1(),
		ResourceQuotaInformer:     recountedQuotas{s.shared.Core().V1().ResourceQuotas()},
		ResyncPeriod:              func() time.Duration { return settings.ResourceQuotaSyncPeriod.Duration },
		InformerFactory:           informers,
		ReplenishmentResyncPeriod: ResyncPeriod,
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      configuration.IgnoredResources,
		InformersStarted:          s.started,
		Registry:                  generic.NewRegistry(configuration.Evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, err
	}
	changed := s.resources.subscribe(ctx)
	return together(
		func(ctx context.Context) { quota.Run(ctx, int(settings.ConcurrentResourceQuotaSyncs)) },
		func(ctx context.Context) {
			again(ctx, changed, func(ctx context.Context) { quota.Sync(ctx, discover, cmp.Or(s.config.Seldom, resourcesPeriod)) })
		},
	), nil
}

// ResyncPeriod returns 12 to 24 hours at random, like upstream, so that resources are not resynced at the same time.
func ResyncPeriod() time.Duration { return wait.Jitter(12*time.Hour, 1) }

// buildClusterRoleAggregation builds the controller that gathers the rules of aggregated ClusterRoles.
func buildClusterRoleAggregation(_ context.Context, s *runState, c clients) (func(context.Context), error) {
	return oneWorker(clusterroleaggregation.NewClusterRoleAggregation(s.shared.Rbac().V1().ClusterRoles(), c.RbacV1()), nil)
}

// buildPolicyStatus builds the controller that checks the types in the expressions of ValidatingAdmissionPolicies. It
// gets schemas from /openapi/v3 when a policy needs them; upstream also builds all of them in memory first.
func buildPolicyStatus(_ context.Context, s *runState, c clients) (func(context.Context), error) {
	checker := &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: c.Discovery()},
		RestMapper:     s.mapper,
	}
	controller, err := validatingadmissionpolicystatus.NewController(
		s.shared.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		c.AdmissionregistrationV1().ValidatingAdmissionPolicies(), checker)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		controller.Run(ctx, int(s.config.Settings.ValidatingAdmissionPolicyStatusController.ConcurrentPolicySyncs))
	}, nil
}

// buildServiceCIDR builds the controller that sets ServiceCIDRs ready, and protects those with addresses in use.
func buildServiceCIDR(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	networking := s.shared.Networking().V1()
	return oneWorker(servicecidrs.NewController(ctx, networking.ServiceCIDRs(), networking.IPAddresses(), c), nil)
}

// buildClaimProtection builds the controller that releases a PersistentVolumeClaim when no Pod uses it.
func buildClaimProtection(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	return oneWorker(pvcprotection.NewPVCProtectionController(klog.FromContext(ctx),
		s.shared.Core().V1().PersistentVolumeClaims(), s.shared.Core().V1().Pods(), c))
}

// buildVolumeProtection builds the controller that releases a PersistentVolume when no claim is bound to it.
func buildVolumeProtection(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	return oneWorker(pvprotection.NewPVProtectionController(klog.FromContext(ctx), s.shared.Core().V1().PersistentVolumes(), c))
}

// buildAttributesClassProtection builds the controller that releases a VolumeAttributesClass when no volume uses it.
func buildAttributesClassProtection(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	return oneWorker(vacprotection.NewVACProtectionController(klog.FromContext(ctx), c,
		s.shared.Core().V1().PersistentVolumeClaims(), s.shared.Core().V1().PersistentVolumes(),
		s.shared.Storage().V1().VolumeAttributesClasses()))
}

// buildStorageVersionMigrator builds the controllers that rewrite objects for a StorageVersionMigration, in the current storage
// version and with the current encryption key (KEP-4192). They read the objects from the garbage collector's informers, so the
// collector must be built first.
func buildStorageVersionMigrator(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	dynamicClient, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make its dynamic client: %w", err)
	}
	definitionClient, err := clientset.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make its client for custom resource definitions: %w", err)
	}
	migrations := s.shared.Storagemigration().V1().StorageVersionMigrations()
	const name = "storage-version-migrator-controller" // also the field manager
	migrator := storageversionmigrator.NewSVMController(ctx, c, dynamicClient, migrations, name, s.mapper, s.collector.graph(ctx))
	versions := storageversionmigrator.NewResourceVersionController(ctx, c, c.Discovery(), c.metadata, migrations, s.mapper)
	runner := storageversionmigrator.NewCustomResourceController(ctx, c, migrations, definitionClient.ApiextensionsV1().CustomResourceDefinitions())
	return together(migrator.Run, versions.Run, runner.Run), nil
}

// Settings are kube-controller-manager's settings, from flags or its configuration file.
type Settings = managerconfig.KubeControllerManagerConfiguration

// DefaultSettings returns kube-controller-manager's defaults, with a service account for each controller as in a kubeadm cluster.
func DefaultSettings() (*Settings, error) {
	versioned, settings := &managerv1alpha1.KubeControllerManagerConfiguration{}, &Settings{}
	managerscheme.Scheme.Default(versioned)
	for resource := range garbagecollector.DefaultIgnoredResources() {
		collector := &versioned.GarbageCollectorController
		collector.GCIgnoredResources = append(collector.GCIgnoredResources,
			managerv1alpha1.GroupResource{Group: resource.Group, Resource: resource.Resource})
	}
	if err := managerscheme.Scheme.Convert(versioned, settings, nil); err != nil {
		return nil, err
	}
	settings.KubeCloudShared.UseServiceAccountCredentials = true
	return settings, nil
}

// ignoredResources are the resources whose objects the garbage collector ignores.
func (c Config) ignoredResources() map[schema.GroupResource]struct{} {
	ignored := map[schema.GroupResource]struct{}{}
	for _, resource := range c.Settings.GarbageCollectorController.GCIgnoredResources {
		ignored[schema.GroupResource{Group: resource.Group, Resource: resource.Resource}] = struct{}{}
	}
	return ignored
}
