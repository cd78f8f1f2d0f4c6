package aggregation

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

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
