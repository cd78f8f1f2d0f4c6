package server

import (
	"fmt"
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/discovery"

	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/openapi"
	"github.com/sqube/sqube/server/resources"
)

// newHandler returns the handler of all requests, from the network and from the loopback.
func (s *Server) newHandler() (http.Handler, error) {
	converter, err := resources.TypeConverter()
	if err != nil {
		return nil, err
	}
	documents, err := openapi.New(openapi.Config{
		BuiltIn: s.builtIn(), Definitions: s.history.established, Whole: s.history.whole,
		Partly: s.history.operations(), Remotes: s.aggregation.Documents,
	})
	if err != nil {
		return nil, err
	}
	address := s.options.address()
	built := handlers.New(handlers.Config{
		Groups: s.groups, Admission: s.admission.Interface, Authorizer: s.authorization.Authorizer,
		TypeConverter: historyTypes{converter}, EquivalentResources: s.resources.Equivalent,
		MaxRequestBodyBytes: s.options.MaxRequestBodyBytes, MinRequestTimeout: s.options.minRequestTimeout(),
		Discovery: discovery.DefaultAddresses{DefaultAddress: address}, APIs: s.discovery,
		Custom: s.crd, CustomConversionFailures: s.crd.ConversionFailures,
		DatastoreFailures: s.store.Failures,
	})
	openID, _ := s.accounts.OpenIDHandlers(address) // an issuer without https has no discovery documents, and needs none
	return s.withFilters(s.aggregation.Handler(s.routes(built, documents, openID)), built), nil
}

// address is the host and port at which clients on other machines reach the server.
func (o *Options) address() string {
	port := fmt.Sprint(o.Serving.BindPort)
	if name := o.ExternalHost; name != "" {
		if _, _, err := net.SplitHostPort(name); err == nil {
			return name
		}
		return net.JoinHostPort(name, port)
	}
	host := o.advertised()
	if host == nil {
		host = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(host.String(), port)
}
