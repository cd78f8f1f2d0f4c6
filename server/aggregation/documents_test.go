package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiservices "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"github.com/sqube/sqube/test/harness"
)

// runDocuments runs documents without the controller, which would read them a second later and then every minute.
func runDocuments(t *testing.T) *documents {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d, ended := newDocuments(), make(chan struct{})
	go func() {
		defer close(ended)
		d.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return d
}

// service is the APIService of the server behind the Service ns/widgets.
func service() *apiregistrationv1.APIService {
	s := &apiregistrationv1.APIService{}
	s.Name, s.Spec.Group, s.Spec.Version = "v1.example.com", "example.com", "v1"
	s.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "widgets"}
	return s
}

// publishes serves an OpenAPI v2 document with the path that path returns, or fails if that is "".
func publishes(path func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := path()
		switch {
		case now == "":
			http.Error(w, "starting", http.StatusServiceUnavailable)
		case r.URL.Path != "/openapi/v2":
			http.NotFound(w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"swagger":"2.0","info":{"title":"t","version":"v1"},"paths":{"%s":{}}}`, now)
		}
	})
}

// await waits until a path is published.
func (d *documents) await(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if list := d.list(); len(list) == 1 && list[0].V2 != nil {
			if _, ok := list[0].V2.Paths.Paths[path]; ok {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not published", path)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(time.Millisecond):
		}
	}
}

func TestDocumentsAreReadAtOnce(t *testing.T) {
	d := runDocuments(t)
	for _, path := range []string{"/apis/example.com/v1/one", "/apis/example.com/v1/two"} { // of another server
		d.AddUpdateAPIService(publishes(func() string { return path }), service())
		d.await(t, path)
	}
}

// TestDocumentsFollowServers changes what a server publishes, like a new release, without a change of its APIService.
func TestDocumentsFollowServers(t *testing.T) {
	d := runDocuments(t)
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	harness.Must(t, d.follow(factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()))
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())

	var release atomic.Int32
	path := func() string {
		if now := release.Load(); now > 0 {
			return fmt.Sprintf("/apis/example.com/v1/release%d", now)
		}
		return ""
	}
	asked := make(chan struct{}, 1)
	handler := publishes(path)
	d.AddUpdateAPIService(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		select {
		case asked <- struct{}{}:
		default:
		}
	}), service())
	select {
	case <-asked: // and failed
	case <-time.After(30 * time.Second):
		t.Fatal("the documents are not read")
	}
	release.Store(1)
	d.await(t, path())

	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "widgets-1", Labels: map[string]string{discoveryv1.LabelServiceName: "widgets"}}}
	for _, change := range []func() error{
		func() error {
			_, err := client.DiscoveryV1().EndpointSlices("ns").Create(t.Context(), slice, metav1.CreateOptions{})
			return err
		},
		func() error {
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}
			_, err := client.DiscoveryV1().EndpointSlices("ns").Update(t.Context(), slice, metav1.UpdateOptions{})
			return err
		},
		func() error {
			_, err := client.CoreV1().Services("ns").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}, metav1.CreateOptions{})
			return err
		},
		func() error {
			return client.DiscoveryV1().EndpointSlices("ns").Delete(t.Context(), slice.Name, metav1.DeleteOptions{})
		},
	} {
		release.Add(1)
		harness.Must(t, change())
		d.await(t, path())
	}
}

// TestDocumentsOfOtherServers does not read documents when other Services change.
func TestDocumentsOfOtherServers(t *testing.T) {
	d := newDocuments()
	defer d.changed.ShutDown()
	d.AddUpdateAPIService(http.NotFoundHandler(), service())
	name, _ := d.changed.Get()
	d.changed.Done(name)
	for _, test := range []struct {
		namespace, service string
		want               int
	}{{"ns", "others", 0}, {"elsewhere", "widgets", 0}, {"ns", "widgets", 1}} {
		d.moved(test.namespace, test.service)
		if n := d.changed.Len(); n != test.want {
			t.Errorf("after a change of %s/%s, %d documents are read", test.namespace, test.service, n)
		}
	}
}

// TestCoreGroupIsNotBelowApis has a server without APIServices, which serves its built-in groups nevertheless.
func TestCoreGroupIsNotBelowApis(t *testing.T) {
	a := &Aggregator{
		services: listers.NewAPIServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)),
		registrar: &registrar{builtIn: []*apiregistrationv1.APIService{
			apiService(schema.GroupVersion{Version: "v1"}), apiService(schema.GroupVersion{Group: "apps", Version: "v1"}),
		}},
		proxies: &proxies{},
	}
	handler := a.Handler(http.NotFoundHandler())
	for path, want := range map[string]int{"/apis/apps": http.StatusOK, "/apis//": http.StatusNotFound} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("GET %s responds with %d, want %d: %s", path, w.Code, want, w.Body)
		}
	}
}

// stored is a client that creates APIServices in the cache of an informer.
type stored struct {
	apiservices.APIServiceInterface
	index cache.Indexer
}

func (s stored) APIServices() apiservices.APIServiceInterface { return s }

func (s stored) Create(_ context.Context, service *apiregistrationv1.APIService, _ metav1.CreateOptions) (*apiregistrationv1.APIService, error) {
	return service, s.index.Add(service)
}

// TestAnOlderServerDeletesAPIServices has another server delete an APIService before it was available, and after that.
func TestAnOlderServerDeletesAPIServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wanted := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.new"}}
		index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		r := &registrar{
			client: stored{index: index}, lister: listers.NewAPIServiceLister(index),
			builtIn: []*apiregistrationv1.APIService{wanted}, pending: []*apiregistrationv1.APIService{wanted},
		}
		go r.complete(t.Context())
		time.Sleep(2 * completeInterval)
		again, err := r.lister.Get("v1.new")
		if err != nil || again.Labels["kube-aggregator.kubernetes.io/automanaged"] != "onstart" {
			t.Fatalf("the deleted APIService: %v, %v", again, err)
		}
		if err := r.registered(); err == nil {
			t.Error("it counts as registered before it is available")
		}
		available := again.DeepCopy()
		available.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue}}
		harness.Must(t, index.Update(available))
		time.Sleep(2 * completeInterval)
		harness.Must(t, index.Delete(available))
		time.Sleep(2 * completeInterval)
		if err := r.registered(); err != nil {
			t.Errorf("after it was available once: %v", err)
		}
		if _, err := r.lister.Get("v1.new"); !apierrors.IsNotFound(err) {
			t.Errorf("what was deleted later comes back: %v", err)
		}
	})
}
