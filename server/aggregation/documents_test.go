package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
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
	if err := d.follow(factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()); err != nil {
		t.Fatal(err)
	}
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
		if err := change(); err != nil {
			t.Fatal(err)
		}
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
