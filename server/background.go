package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"

	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/etcdimport"
	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/server/mirror"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/sqlstore"
)

// background is everything that runs alongside requests.
type background struct {
	bootstrap   *bootstrap.Bootstrap
	fairness    utilflowcontrol.Interface // nil if priority and fairness is off
	controllers controllers.Config
	follower    *mirror.Follower // nil if the server is no mirror
}

func newBackground(ctx context.Context, b *base, s *security, a *apis) (_ *background, err error) {
	made := &background{}
	b.informers.Source = func(resource schema.GroupVersionResource) informer.Source { return versioned(b, a, resource, nil) }
	if o := b.options; o.fair() {
		made.fairness = utilflowcontrol.New(b.informers, b.client.FlowcontrolV1(), o.MaxInFlight+o.MaxMutatingInFlight)
	}
	if made.bootstrap, err = newBootstrap(ctx, b, s, a); err != nil {
		return nil, err
	}
	if made.controllers, err = newControllers(b, s, a); err != nil {
		return nil, err
	}
	if o := b.options.Mirror; o != nil {
		if err = a.resources.Build(); err != nil { // it writes to all storages
			return nil, err
		}
		if o.Copy.Importer, err = etcdimport.Over(b.objectCounter.stored(), b.encryption); err != nil {
			return nil, err
		}
		if made.follower, err = mirror.New(ctx, *o, b.store, slog.Default()); err != nil {
			return nil, err
		}
	}
	if coordinated() {
		b.informers.Coordination().V1().Leases().Informer()
		b.informers.Coordination().V1beta1().LeaseCandidates().Informer()
	}
	return made, nil
}

func newBootstrap(ctx context.Context, b *base, s *security, a *apis) (*bootstrap.Bootstrap, error) {
	if b.options.ReadOnly != "" {
		return &bootstrap.Bootstrap{}, nil
	}
	o, headers := b.options, s.authentication.RequestHeader
	endpoint := bootstrap.Endpoint{Port: o.Serving.BindPort}
	if o.EndpointReconciler != noEndpoint {
		endpoint.Address = o.advertised()
	}
	if o.SharedDatastore {
		endpoint.Lease = bootstrap.EndpointLease
	}
	return bootstrap.New(bootstrap.Config{
		Loopback: b.loopback.Config(), Informers: b.informers, ServerID: b.id, KubeletClient: pki.KubeletClientName, RBAC: s.authorization.RBAC, Stored: storeDefaults(ctx, b, s),
		Services: bootstrap.Services{IPRange: o.serviceRange, SecondaryIPRange: o.secondRange, NodePort: o.KubernetesServiceNodePort, Repair: a.resources.Repair.Run},
		Endpoint: endpoint, InMemory: o.filesInMemory(), Seldom: o.seldom(),
		Authentication: clusterauthenticationtrust.ClusterAuthenticationInfo{
			ClientCA:                         s.authentication.UserCA,
			RequestHeaderUsernameHeaders:     headers.UsernameHeaders,
			RequestHeaderUIDHeaders:          headers.UIDHeaders,
			RequestHeaderGroupHeaders:        headers.GroupHeaders,
			RequestHeaderExtraHeaderPrefixes: headers.ExtraHeaderPrefixes,
			RequestHeaderAllowedNames:        headers.AllowedClientNames,
			RequestHeaderCA:                  headers.CAContentProvider,
		},
	})
}

func newControllers(b *base, s *security, a *apis) (c controllers.Config, err error) {
	o := b.options
	rootCA, err := b.pki.Trusted() // for pods, too
	if err != nil {
		return c, err
	}
	settings := o.ControllerSettings
	if settings == nil {
		if settings, err = controllers.DefaultSettings(); err != nil {
			return c, err
		}
	}
	return controllers.Config{
		Selection: o.Controllers, Settings: settings, Others: o.OtherControllers, Scheduler: o.Scheduler,
		Cluster:  controllers.Cluster{CACertFile: b.pki.CA.CertFile, CAKeyFile: b.pki.CA.KeyFile},
		Loopback: b.loopback.Config(), LoopbackOf: b.loopback.ConfigOf, Informers: b.informers, InformersStop: b.phase.running.Done(),
		Discovery: a.discovery, Empty: emptyHere(b, a), Sleep: whileEmpty(b, a), Written: b.written.done,
		Metadata: func(resource schema.GroupVersionResource) informer.Source { return metadata(b, a, resource) }, Feed: b.feed,
		Selected: func(resource schema.GroupVersionResource, selector fields.Selector) informer.Source {
			return versioned(b, a, resource, selector)
		},
		RootCA: rootCA, ServiceAccountKey: s.accounts.Key, Seldom: o.seldom(),
	}, nil
}

// emptyHere returns controllers.Config.Empty.
func emptyHere(b *base, a *apis) func(context.Context, schema.GroupVersionResource, string) (bool, error) {
	return func(ctx context.Context, resource schema.GroupVersionResource, namespace string) (bool, error) {
		stored, ok := storedHere(b, a, resource)
		if !ok {
			return false, nil
		}
		n, err := b.store.Count(ctx, sqlstore.Query{Resource: stored, Prefix: namespace + "/", Limit: 1})
		return n == 0, err
	}
}

// storedHere returns the name under which the objects of a resource are stored, or false if this server does not store them, or
// can't know.
func storedHere(b *base, a *apis, resource schema.GroupVersionResource) (sqlstore.Resource, bool) {
	name := resource.GroupResource()
	ok := !a.aggregation.Proxies(resource.GroupVersion()) && (!crd.BuiltIn(name) || a.resources.Stores(resource))
	return sqlstore.Resource{Group: name.Group, Name: name.Resource}, ok
}

// tasks are the goroutines that run alongside requests, by name.
type tasks struct {
	// panicked is called when a task panics; nil to let the process end.
	panicked func(name string, err error)

	ended   sync.WaitGroup
	mu      sync.Mutex
	running map[string]int
}

func newTasks() *tasks { return &tasks{running: map[string]int{}} }

func (t *tasks) start(name string, run func()) {
	ended := t.track(name)
	go func() {
		defer ended()
		if t.panicked != nil {
			defer func() {
				if cause := recover(); cause != nil {
					t.panicked(name, Panicked(cause))
				}
			}()
		}
		run()
	}()
}

// Panicked logs a panic that must not end the process, with the stack, and returns it as an error. Call it in the function that recovers.
func Panicked(cause any) error {
	slog.Error("a hosted cluster ends because of a panic", "panic", cause, "stack", string(debug.Stack()))
	return fmt.Errorf("panic: %v", cause)
}

// track records that a task is running until ended is called.
func (t *tasks) track(name string) (ended func()) {
	t.note(name, 1)
	return func() { t.note(name, -1) }
}

func (t *tasks) note(name string, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[name] += more; t.running[name] == 0 {
		delete(t.running, name)
	}
	t.ended.Add(more)
}

// wait returns when all tasks have ended. After the timeout it returns an error that names those still running.
func (t *tasks) wait(timeout time.Duration) error {
	err := stopWithin(timeout, "", func() error { t.ended.Wait(); return nil })
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Errorf("%w%s", err, strings.Join(slices.Sorted(maps.Keys(t.running)), ", "))
}

// stopWithin calls stop and returns its error, or an error with the name if stop takes longer than timeout, the
// --shutdown-grace-period. The shutdown then continues without it.
func stopWithin(timeout time.Duration, name string, stop func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(timeout):
		return fmt.Errorf("did not stop within --shutdown-grace-period: %s", name)
	}
}
