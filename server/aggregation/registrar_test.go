package aggregation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiservices "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

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
		if err := index.Update(available); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * completeInterval)
		if err := index.Delete(available); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * completeInterval)
		if err := r.registered(); err != nil {
			t.Errorf("after it was available once: %v", err)
		}
		if _, err := r.lister.Get("v1.new"); !apierrors.IsNotFound(err) {
			t.Errorf("what was deleted later comes back: %v", err)
		}
	})
}
