package aggregation

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	kubeaggregator "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiservices "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/controller/crdregistration"
)

// controller is one of upstream's controllers.
type controller interface {
	Run(workers int, stop <-chan struct{})
}

// registrar creates, updates and deletes the APIServices of the group versions that this server serves itself. It ignores those
// that users created, or whose label kube-aggregator.kubernetes.io/automanaged they changed.
type registrar struct {
	client   apiservices.APIServicesGetter
	lister   listers.APIServiceLister
	builtIn  []*apiregistrationv1.APIService
	mu       sync.Mutex
	pending  []*apiregistrationv1.APIService // those of builtIn that have not been available yet; guarded by mu
	register interface {                     // reconciles APIServices; deletes those of versions that are gone
		controller
		autoregister.AutoAPIServiceRegistration
	}
	definitions crdinformers.CustomResourceDefinitionInformer
	defined     <-chan struct{}
	workers     int
}

func newRegistrar(client clientset.Interface, services informers.APIServiceInformer, c Config) *registrar {
	register := autoregister.NewAutoRegisterController(services, client.ApiregistrationV1())
	r := &registrar{
		client:   client.ApiregistrationV1(),
		lister:   services.Lister(),
		register: register,

		definitions: c.Definitions,
		defined:     c.Defined,
		workers:     c.workers(),
	}
	for _, gv := range c.BuiltIn {
		if service := apiService(gv); service != nil {
			register.AddAPIServiceToSyncOnStart(service)
			r.builtIn = append(r.builtIn, service)
		}
	}
	if !c.ReadOnly {
		r.pending = slices.Clone(r.builtIn)
	}
	return r
}

// owns reports whether a group is built in.
func (r *registrar) owns(group string) bool {
	return slices.ContainsFunc(r.builtIn, func(s *apiregistrationv1.APIService) bool { return s.Spec.Group == group })
}

func apiService(gv schema.GroupVersion) *apiregistrationv1.APIService {
	p, ok := builtIn[gv]
	if !ok {
		return nil
	}
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.Group, VersionPriority: p.Version,
		},
	}
}

// run runs the controllers until ctx ends. That which registers the APIServices that the versions of definitions need begins with the first
// definition.
func (r *registrar) run(ctx context.Context) {
	var running sync.WaitGroup
	known := make(chan struct{})
	running.Go(func() {
		if !wait(ctx, r.defined) {
			return
		}
		custom := crdregistration.NewCRDRegistrationController(r.definitions, r.register)
		go func() { // upstream's wait takes no context, so it is left running if ctx ends
			defer close(known)
			custom.WaitForInitialSync()
		}()
		custom.Run(workers, ctx.Done())
	})
	running.Go(func() {
		if r.definitionsKnown(ctx, known) {
			running.Go(func() { r.complete(ctx) })
			r.register.Run(r.workers, ctx.Done())
		}
	})
	running.Wait()
}

// definitionsKnown waits until every definition has been processed: before that, its APIServices would look like those of versions
// that are gone. It returns false if ctx ends first.
func (r *registrar) definitionsKnown(ctx context.Context, known <-chan struct{}) bool {
	if !cache.WaitFor(ctx, "", r.definitions.Informer().HasSyncedChecker()) {
		return false
	}
	if found, err := r.definitions.Lister().List(labels.Everything()); len(found) == 0 && err == nil {
		return true
	}
	return wait(ctx, known)
}

// completeInterval is how often complete looks for missing APIServices.
const completeInterval = time.Second

// complete creates missing built-in APIServices until all have been available. When an older server starts, it deletes those of versions
// that it does not have, and upstream's controller creates each only once: this server would never be ready.
func (r *registrar) complete(ctx context.Context) {
	_ = apiwait.PollUntilContextCancel(ctx, completeInterval, false, func(ctx context.Context) (bool, error) {
		missing := r.unregistered()
		for _, wanted := range missing {
			if _, err := r.lister.Get(wanted.Name); !apierrors.IsNotFound(err) {
				continue
			}
			service := wanted.DeepCopy()
			service.Labels = map[string]string{autoregister.AutoRegisterManagedLabel: "onstart"}
			if _, err := r.client.APIServices().Create(ctx, service, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				slog.Warn("an APIService of a built-in API could not be created; retrying", "name", service.Name, "error", err)
			}
		}
		return len(missing) == 0, nil
	}) // the error is that of ctx
}

// unregistered returns the built-in APIServices that have not been available yet.
func (r *registrar) unregistered() []*apiregistrationv1.APIService {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = slices.DeleteFunc(r.pending, func(wanted *apiregistrationv1.APIService) bool {
		service, err := r.lister.Get(wanted.Name)
		return err == nil && helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available)
	})
	return slices.Clone(r.pending)
}

// registered returns an error that names the built-in APIServices that have not been available yet, nil if there are none. Those that
// are deleted later need not come back, as with kube-apiserver.
func (r *registrar) registered() error {
	var missing []string
	for _, service := range r.unregistered() {
		missing = append(missing, service.Name)
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("missing APIServices: %s", strings.Join(missing, ", "))
	}
	return nil
}

// builtIn has the priorities of the built-in group versions in discovery, from kube-apiserver: those that it exports and those
// that it does not (cmd/kube-apiserver/app/aggregator.go). If several groups have a resource of the same name, `kubectl get` uses
// the group with the highest priority. (apiregistration.k8s.io has no APIService: it comes before all others.)
var builtIn = func() map[schema.GroupVersion]apiserver.APIServicePriority {
	all := apiserver.DefaultGenericAPIServicePriorities()
	for group, p := range map[string]struct {
		group    int32
		versions map[string]int32
	}{
		"apps":              {17800, map[string]int32{"v1": 15}},
		"autoscaling":       {17500, map[string]int32{"v2": 30, "v1": 15}},
		"batch":             {17400, map[string]int32{"v1": 15}},
		"networking.k8s.io": {17200, map[string]int32{"v1": 15, "v1beta1": 9}},
		"policy":            {17100, map[string]int32{"v1": 15}},
		"storage.k8s.io":    {16800, map[string]int32{"v1": 15, "v1beta1": 9}},
		"scheduling.k8s.io": {16600, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha3": 3}},
		"node.k8s.io":       {16300, map[string]int32{"v1": 15}},
		"resource.k8s.io":   {16200, map[string]int32{"v1": 21, "v1beta2": 15, "v1beta1": 9, "v1alpha3": 1}},
		"lifecycle.k8s.io":  {15700, map[string]int32{"v1alpha1": 1}},
		"history.sqube.io":  {1500, map[string]int32{"v1alpha1": 1}}, // after all of Kubernetes' own
	} {
		for version, priority := range p.versions {
			all[schema.GroupVersion{Group: group, Version: version}] = apiserver.APIServicePriority{Group: p.group, Version: priority}
		}
	}
	return all
}()

// prioritize sets the priorities of the built-in group versions.
func prioritize(discovery aggregated.ResourceManager) {
	for gv, p := range builtIn {
		discovery.SetGroupVersionPriority(metav1.GroupVersion(gv), int(p.Group), int(p.Version))
	}
	// This comes first. Upstream says so only when it begins to read the discovery of other servers.
	discovery.WithSource(aggregated.BuiltinSource).SetGroupVersionPriority(kubeaggregator.APIRegistrationGroupVersion, kubeaggregator.APIRegistrationGroupPriority, 0)
}
