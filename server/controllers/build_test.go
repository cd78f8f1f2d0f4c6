package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// TestEndWhileBuilding loses leadership while a controller is being built, which fails because of that: the server continues. The
// controllers already built get to end what they began.
func TestEndWhileBuilding(t *testing.T) {
	discovery := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list"]}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer discovery.Close()
	ctx, lose := context.WithCancel(t.Context())
	slow := Controller{Name: "slow-controller", Build: func(ctx context.Context, _ Shared) (func(context.Context), error) {
		lose()
		<-ctx.Done()
		return nil, fmt.Errorf("list nodes: %w", ctx.Err())
	}}
	ended := false
	built := Controller{Name: "built-controller", Build: func(context.Context, Shared) (func(context.Context), error) {
		return func(ctx context.Context) {
			<-ctx.Done()
			ended = true
		}, nil
	}}
	loopback := &rest.Config{Host: discovery.URL}
	c := Config{
		Loopback: loopback, LoopbackOf: func(string, ...string) *rest.Config { return loopback }, Settings: &Settings{},
		Informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0), InformersStop: make(chan struct{}),
		Discovery: invalidations{}, Track: func(string) func() { return func() {} },
	}
	if err := run(ctx, c, []controller{built.internal(), slow.internal()}); err != nil {
		t.Errorf("run returns %v, which would stop the server", err)
	}
	if !ended {
		t.Error("the controller that had been built did not end")
	}
}

// invalidations never happen.
type invalidations struct{}

func (invalidations) AddInvalidationCallback(func()) {}
