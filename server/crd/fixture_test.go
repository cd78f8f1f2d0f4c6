package crd_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/mux"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/openapi"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// server is the part of an API server that custom resources need: no access control, no other groups.
type server struct {
	*crd.Server
	config      *rest.Config
	definitions clientset.Interface
	objects     dynamic.Interface
}

func start(t *testing.T, change ...func(*crd.Config)) *server {
	t.Helper()
	return startAfter(t, func(clientset.Interface) {}, change...)
}

// startAfter calls before while requests are served and no controller runs.
func startAfter(t *testing.T, before func(definitions clientset.Interface), change ...func(*crd.Config)) *server {
	t.Helper()
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	storage := apistorage.Decorator(store, nil)
	transport := loopback.New(t.Context())
	authorizer := authorizerfactory.NewAlwaysAllowAuthorizer()
	apis := aggregated.NewResourceManager("apis")
	complete := make(chan struct{})
	close(complete)

	config := crd.Config{
		Storage:    storage,
		Loopback:   transport.Config(),
		Admission:  admission.NewChainHandler(),
		Authorizer: authorizer,
		Discovery:  apis,
		Services:   webhook.NewDefaultServiceResolver(),
		Authentication: func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
			return r
		},
		RequestTimeout: time.Minute, MinRequestTimeout: time.Minute, MaxRequestBodyBytes: 3 << 20,
		Complete: complete,
		Feed:     informer.NewFeed(store), Alone: true,
	}
	for _, f := range change {
		f(&config)
	}
	s, err := crd.New(config)
	harness.Must(t, err)
	builtIn := []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion}
	documents, err := openapi.New(openapi.Config{
		BuiltIn:     builtIn,
		Definitions: s.Established, Whole: s.Whole,
	})
	harness.Must(t, err)
	router := mux.NewRouter().SkipClean(true)
	router.PathPrefix("/openapi/").Handler(documents)
	router.Handle("/apis", apis)
	transport.SetHandler(chain(serve(t, s, apis).Handler(router)))

	definitions, err := clientset.NewForConfig(transport.Config())
	harness.Must(t, err)
	before(definitions)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		harness.Must(t, transport.Shutdown(context.Background()))
	})
	objects, err := dynamic.NewForConfig(transport.Config())
	harness.Must(t, err)
	harness.Eventually(t, "the definitions to be synced", s.HasSynced)
	return &server{s, transport.Config(), definitions, objects}
}

// serve makes the handlers of definitions, and behind them those of custom resources.
func serve(t *testing.T, s *crd.Server, apis aggregated.ResourceManager) *handlers.API {
	t.Helper()
	group, err := handlers.GroupOf(s.Group())
	harness.Must(t, err)
	return handlers.New(handlers.Config{
		Groups:              []*handlers.Group{group},
		Authorizer:          authorizerfactory.NewAlwaysAllowAuthorizer(),
		TypeConverter:       managedfields.NewDeducedTypeConverter(),
		EquivalentResources: runtime.NewEquivalentResourceRegistry(),
		MinRequestTimeout:   time.Minute,
		Discovery:           discovery.DefaultAddresses{DefaultAddress: "127.0.0.1"},
		APIs:                apis,
		Custom:              s,

		CustomConversionFailures: s.ConversionFailures,
	})
}

// chain adds the filters that put the user and the RequestInfo into each request's context.
func chain(h http.Handler) http.Handler {
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), admin)))
	})
	informed := filters.WithRequestInfo(filters.WithWarningRecorder(named),
		&request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")})
	return filters.WithAuditInit(filters.WithRequestReceivedTimestamp(informed))
}

// define creates a definition and waits until it is established.
func (s *server) define(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	_, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, d.Name+" is established", func() bool {
		defined, err := s.Informer().Lister().Get(d.Name)
		return err == nil && apihelpers.IsCRDConditionTrue(defined, apiextensionsv1.Established)
	})
}
