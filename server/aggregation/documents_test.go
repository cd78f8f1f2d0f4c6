package aggregation

import (
	"context"
	"net/http"
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestDocumentsAreReadAtOnce runs no controller, which would start a second later.
func TestDocumentsAreReadAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d, ended := newDocuments(), make(chan struct{})
	go func() {
		defer close(ended)
		d.run(ctx)
	}()
	service := &apiregistrationv1.APIService{}
	service.Name, service.Spec.Group, service.Spec.Version = "v1.example.com", "example.com", "v1"
	service.Spec.Service = &apiregistrationv1.ServiceReference{}
	publish := func(path string) {
		t.Helper()
		d.AddUpdateAPIService(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/openapi/v2" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			if _, err := w.Write([]byte(`{"swagger":"2.0","info":{"title":"t","version":"v1"},"paths":{"` + path + `":{}}}`)); err != nil {
				t.Error(err)
			}
		}), service)
		for deadline := time.Now().Add(10 * time.Second); ; {
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
	publish("/apis/example.com/v1/one")
	publish("/apis/example.com/v1/two") // of another server
	cancel()
	<-ended
}
