package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"

	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/loopback"
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
	return s.withFilters(s.awaitKnown(s.aggregation.Handler(s.routes(built, documents, openID)), built), built), nil
}

// knownTimeout limits how long requests wait for what is served besides the built-in resources.
const knownTimeout = 5 * time.Second

// awaitKnown lets requests that depend on definitions and APIServices wait until these have been read, which takes milliseconds after a start.
// Before, a client would be told that what is there is not. The server's own clients wait where they have to.
func (s *Server) awaitKnown(next http.Handler, built *handlers.API) http.Handler {
	var known atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known.Load() && needsDefinitions(r.URL.Path, built) && !loopback.Made(r) {
			ctx, cancel := context.WithTimeout(r.Context(), knownTimeout)
			if s.crd.Wait(ctx) {
				select {
				case <-s.installed:
					known.Store(true)
				case <-ctx.Done():
				}
			}
			cancel()
		}
		next.ServeHTTP(w, r)
	})
}

// needsDefinitions reports whether what a path has depends on definitions and APIServices: the list of groups, OpenAPI, and versions that are
// not built in.
func needsDefinitions(path string, built *handlers.API) bool {
	rest, ok := strings.CutPrefix(path, "/apis")
	if !ok {
		return strings.HasPrefix(path, "/openapi/")
	}
	group, rest, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	version, _, _ := strings.Cut(rest, "/")
	return !built.HasVersion(schema.GroupVersion{Group: group, Version: version})
}

// address is the host and port at which clients on other machines reach the server, with the path of a hosted cluster.
func (o *Options) address() string {
	if o.Hosted != nil {
		return strings.TrimPrefix(o.Hosted.URL, "https://")
	}
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
