package apiservices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
	external "k8s.io/kube-aggregator/pkg/controllers/status/local"
	"k8s.io/kube-aggregator/pkg/controllers/status/metrics"
	"k8s.io/kubernetes/pkg/controlplane/controller/crdregistration"
)

const (
	// resync is how often the controllers look at every APIService again, as in kube-apiserver.
	resync = 5 * time.Minute
	// workers is how many APIServices each controller handles at once, as in kube-apiserver.
	workers = 5
)

// Config is what there is to register, and how. All fields are required.
type Config struct {
	// Loopback reaches this server in process.
	Loopback *rest.Config
	// BuiltIn are the group versions served that are not custom. Those without a priority get no APIService.
	BuiltIn []schema.GroupVersion
	// Definitions watches CustomResourceDefinitions; who made it starts it.
	Definitions crdinformers.CustomResourceDefinitionInformer
}

// controller is how upstream's controllers are run.
type controller interface {
	Run(workers int, stop <-chan struct{})
}

// Registrar creates, updates and deletes APIService objects. Those that somebody changed the label
// kube-aggregator.kubernetes.io/automanaged of, or created himself, it leaves alone.
type Registrar struct {
	factory   externalversions.SharedInformerFactory
	lister    listers.APIServiceLister
	names     []string // of built-in APIServices
	register  controller
	available controller
	custom    interface {
		controller
		WaitForInitialSync()
	}
}

// New builds the controllers and starts none.
func New(c Config) (*Registrar, error) {
	if c.Loopback == nil || c.Definitions == nil {
		return nil, errors.New("APIServices: Loopback and Definitions are required")
	}
	client, err := clientset.NewForConfig(rest.AddUserAgent(rest.CopyConfig(c.Loopback), "apiregistration"))
	if err != nil {
		return nil, fmt.Errorf("build the loopback client of APIServices: %w", err)
	}
	gauges, err := registeredMetrics()
	if err != nil {
		return nil, fmt.Errorf("register the metrics of APIServices: %w", err)
	}
	factory := externalversions.NewSharedInformerFactory(client, resync)
	informer := factory.Apiregistration().V1().APIServices()
	available, err := external.New(informer, client.ApiregistrationV1(), gauges)
	if err != nil {
		return nil, fmt.Errorf("build the controller of APIServices: %w", err)
	}
	register := autoregister.NewAutoRegisterController(informer, client.ApiregistrationV1())
	r := &Registrar{
		factory:   factory,
		lister:    informer.Lister(),
		register:  register,
		available: available,
		custom:    crdregistration.NewCRDRegistrationController(c.Definitions, register),
	}
	for _, gv := range c.BuiltIn {
		if service := apiService(gv); service != nil {
			register.AddAPIServiceToSyncOnStart(service)
			r.names = append(r.names, service.Name)
		}
	}
	slices.Sort(r.names)
	return r, nil
}

// registeredMetrics makes the metrics of availability; a process has one set, however many servers run in it.
var registeredMetrics = sync.OnceValues(func() (*metrics.Metrics, error) {
	m := metrics.New()
	return m, m.Register(legacyregistry.Register, legacyregistry.CustomRegister)
})

func apiService(gv schema.GroupVersion) *apiregistrationv1.APIService {
	p, ok := PriorityOf(gv)
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

// Run runs the controllers until ctx ends, and returns when they have ended. It is called once.
//
//	register   makes APIServices be what they should be; deletes those of versions that are gone
//	custom     says what they should be for the versions of definitions
//	available  writes the condition Available
func (r *Registrar) Run(ctx context.Context) {
	r.factory.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.available.Run(workers, ctx.Done()) })
	running.Go(func() { r.custom.Run(workers, ctx.Done()) })
	running.Go(func() {
		if !r.definitionsKnown(ctx) {
			return
		}
		r.register.Run(workers, ctx.Done())
	})
	running.Wait()
	r.factory.Shutdown()
}

// definitionsKnown waits until every definition has said what should be registered for it: before, its APIServices would
// look like those of versions that are gone. It returns false if ctx ends first; upstream's wait can't be told, so then it
// stays behind.
func (r *Registrar) definitionsKnown(ctx context.Context) bool {
	known := make(chan struct{})
	go func() {
		defer close(known)
		r.custom.WaitForInitialSync()
	}()
	select {
	case <-known:
		return true
	case <-ctx.Done():
		return false
	}
}

// Registered returns nil once every built-in APIService is there and available; before, an error that names those that
// are missing. kube-apiserver reports this as the health check autoregister-completion.
func (r *Registrar) Registered() error {
	var missing []string
	for _, name := range r.names {
		service, err := r.lister.Get(name)
		if err != nil || !helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing APIServices: %s", strings.Join(missing, ", "))
	}
	return nil
}
