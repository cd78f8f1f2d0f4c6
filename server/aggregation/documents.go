package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	openapiv2 "k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator"
	openapiv3 "k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator"
	"k8s.io/kube-openapi/pkg/aggregator"

	"github.com/sqube/sqube/server/openapi"
)

// documents has the OpenAPI documents of aggregated servers. It reads them when an APIService, its Service or the endpoints of that are
// added or changed, such as by a new release of the server, and again after failures. Upstream's controller, which starts a second
// later, makes it read them every minute. It keeps what it has read until then.
type documents struct {
	changed workqueue.TypedRateLimitingInterface[string] // names of APIServices

	mu     sync.Mutex
	byName map[string]*published
}

// published is the documents of the server of one APIService.
type published struct {
	service *apiregistrationv1.APIService
	remote  openapi.Remote
}

func newDocuments() *documents {
	retry := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast)
	return &documents{changed: workqueue.NewTypedRateLimitingQueue(retry), byName: map[string]*published{}}
}

const (
	// retryFirst and retryLast are how soon a server is asked again after its first failure, and after many.
	retryFirst, retryLast = time.Second, time.Minute
	// routed is how long the cluster's network may take to follow a change of endpoints: until then, a request may reach what was there
	// before.
	routed = 2 * time.Second
)

// follow reads the documents of an APIService when its Service changes, or the endpoints of that.
func (d *documents) follow(services coreinformers.ServiceInformer, endpoints discoveryinformers.EndpointSliceInformer) error {
	changed := func(object any) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		switch o := object.(type) {
		case *corev1.Service:
			d.moved(o.Namespace, o.Name)
		case *discoveryv1.EndpointSlice:
			d.moved(o.Namespace, o.Labels[discoveryv1.LabelServiceName])
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: changed}
	_, err := services.Informer().AddEventHandler(handler)
	if err == nil {
		_, err = endpoints.Informer().AddEventHandler(handler)
	}
	return err
}

// moved reads the documents of the servers behind a Service.
func (d *documents) moved(namespace, service string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, p := range d.byName {
		if at := p.service.Spec.Service; at != nil && at.Namespace == namespace && at.Name == service {
			d.changed.Add(name)
			d.changed.AddAfter(name, routed)
		}
	}
}

// run reads the documents of added or changed APIServices until ctx ends.
func (d *documents) run(ctx context.Context) {
	defer context.AfterFunc(ctx, d.changed.ShutDown)()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				name, ended := d.changed.Get()
				if ended {
					return
				}
				err := d.UpdateAPIServiceSpec(name)
				if err == nil || errors.Is(err, openapiv3.ErrAPIServiceNotFound) {
					d.changed.Forget(name)
				} else {
					klog.FromContext(ctx).V(4).Info("OpenAPI can't be read yet; trying again", "APIService", name, "err", err)
					d.changed.AddRateLimited(name)
				}
				d.changed.Done(name)
			}
		})
	}
	running.Wait()
}

func (d *documents) AddUpdateAPIService(handler http.Handler, service *apiregistrationv1.APIService) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.byName[service.Name]
	if p == nil {
		p = &published{remote: openapi.Remote{GroupVersion: schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}}}
		d.byName[service.Name] = p
	}
	p.service, p.remote.Handler = service, handler
	d.changed.Add(service.Name)
}

func (d *documents) RemoveAPIServiceSpec(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byName, name)
}

// GetAPIServiceNames implements openapiv3.SpecProxier. It lists the APIServices that the controller is not notified of: none.
func (d *documents) GetAPIServiceNames() []string { return nil }

// UpdateAPIServiceSpec implements openapiv3.SpecProxier: it reads the documents of one server, which may have none.
func (d *documents) UpdateAPIServiceSpec(name string) error {
	d.mu.Lock()
	p, ok := d.byName[name]
	if !ok {
		d.mu.Unlock()
		return openapiv3.ErrAPIServiceNotFound
	}
	remote := p.remote
	d.mu.Unlock()

	if err := read(&remote); err != nil {
		return fmt.Errorf("read OpenAPI of APIService %s: %w", name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	remote.Handler = p.remote.Handler
	p.remote = remote
	return nil
}

// read updates the documents of a server.
func read(r *openapi.Remote) error {
	v3 := openapiv3.NewDownloader()
	list, _, err := v3.OpenAPIV3Root(r.Handler)
	if err != nil {
		return err
	}
	r.V3URL = ""
	if list != nil {
		r.V3URL = list.Paths[r.Path()].ServerRelativeURL
	}
	v2 := openapiv2.NewDownloader()
	document, etag, status, err := v2.Download(r.Handler, r.V2ETag)
	switch {
	case err != nil:
		return err
	case status == http.StatusOK:
		r.V2, r.V2ETag = aggregator.FilterSpecByPathsWithoutSideEffects(document, []string{"/" + r.Path() + "/"}), etag
	case status == http.StatusNotFound:
		r.V2, r.V2ETag = nil, ""
	}
	return nil
}

// Documents lists the documents of other servers, in the order of their groups' priorities.
func (a *Aggregator) Documents() []openapi.Remote {
	select {
	case <-a.proxies.needed:
		return a.proxies.documents.list()
	default:
		return nil
	}
}

func (d *documents) list() []openapi.Remote {
	d.mu.Lock()
	defer d.mu.Unlock()
	var services []*apiregistrationv1.APIService
	for _, p := range d.byName {
		services = append(services, p.service)
	}
	var remotes []openapi.Remote
	for _, versions := range helper.SortedByGroupAndVersion(services) {
		for _, s := range versions {
			remotes = append(remotes, d.byName[s.Name].remote)
		}
	}
	return remotes
}
