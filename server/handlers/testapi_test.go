package handlers_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	crdserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// serviceRange is the range of the tests' cluster IPs.
var serviceRange = net.IPNet{IP: net.IPv4(10, 0, 0, 0).To4(), Mask: net.CIDRMask(24, 32)}

// noIssuer stands in for an issuer of tokens, without which serviceaccounts/token isn't served.
type noIssuer struct{ serviceaccount.TokenGenerator }

// options configure an API. The zero value serves the default versions from an empty database.
type options struct {
	storage       generic.StorageDecorator
	runtimeConfig map[string]string
	kubelet       kubeletclient.KubeletClientConfig
	change        func(*handlers.Config)
}

// api is a served API.
type api struct {
	http.Handler
	client kubernetes.Interface // in process
}

// newAPI serves every built-in group, and apiextensions.k8s.io, behind the filters that handlers rely on.
func newAPI(t testing.TB, o options) api {
	t.Helper()
	if o.storage == nil {
		o.storage = apistorage.Decorator(storetest.Open(t, engines.SQLite, sqlstore.Options{}), resources.Kinds)
	}
	versions, err := resources.ParseRuntimeConfig(o.runtimeConfig)
	harness.Must(t, err)
	stored, err := resources.NewRESTOptions(versions, o.storage)
	harness.Must(t, err)
	transport := loopback.New(t.Context())
	client, err := kubernetes.NewForConfig(transport.Config())
	harness.Must(t, err)
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	built, err := resources.New(resources.Config{
		RESTOptions:     stored,
		Versions:        versions,
		Loopback:        transport.Config(),
		Informers:       informers.NewSharedInformerFactory(client, 0),
		Services:        resources.Services{IPRange: serviceRange, NodePorts: kubeoptions.DefaultServiceNodePortRange},
		ServiceAccounts: resources.ServiceAccounts{Issuer: noIssuer{}},
		Kubelet:         o.kubelet,
		Authorizer:      allow,
		RuleResolver:    allow,
	})
	harness.Must(t, err)
	t.Cleanup(built.Destroy)

	definitions, err := handlers.GroupOf(newCRDGroup(t, o.storage))
	harness.Must(t, err)
	groups := append(built.Groups, definitions)
	converter, err := resources.TypeConverter()
	harness.Must(t, err)
	config := handlers.Config{
		Groups:              groups,
		Authorizer:          allow,
		TypeConverter:       converter,
		EquivalentResources: built.Equivalent,
		MaxRequestBodyBytes: 3 << 20,
		MinRequestTimeout:   time.Minute,
		Discovery:           discovery.DefaultAddresses{DefaultAddress: "10.10.10.10:8050"},
		APIs:                aggregated.NewResourceManager("apis"),
		Custom:              http.NotFoundHandler(),
	}
	if o.change != nil {
		o.change(&config)
	}
	served := handlers.New(config)
	handler := withRequestContext(served.Handler(http.NotFoundHandler()))
	transport.SetHandler(handler)
	t.Cleanup(func() {
		if err := transport.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return api{handler, client}
}

// newCRDGroup builds apiextensions.k8s.io, which has its own scheme.
func newCRDGroup(t testing.TB, storage generic.StorageDecorator) *genericapiserver.APIGroupInfo {
	t.Helper()
	options := resources.CodecRESTOptions{
		Codec:     crdserver.Codecs.LegacyCodec(apiextensionsv1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion),
		Versioner: apiextensionsv1beta1.SchemeGroupVersion, // like upstream: the shorter form
		Decorator: storage,
	}
	definitions, err := customresourcedefinition.NewREST(crdserver.Scheme, options)
	harness.Must(t, err)
	group := genericapiserver.NewDefaultAPIGroupInfo(apiextensions.GroupName, crdserver.Scheme, metav1.ParameterCodec, crdserver.Codecs)
	group.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{
		"customresourcedefinitions":        definitions,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(crdserver.Scheme, definitions),
	}
	return &group
}

// withRequestContext adds the same values to the context as the server's filters.
func withRequestContext(next http.Handler) http.Handler {
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	asAdmin := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
		next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), admin)))
	})
	return genericfilters.WithAuditInit(genericfilters.WithWarningRecorder(genericfilters.WithRequestInfo(asAdmin, infos)))
}
