package handlers

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Config is what the handlers need from the rest of the server.
type Config struct {
	Groups     []*genericapiserver.APIGroupInfo // the built-in groups; each brings its scheme, codecs and storages
	Serializer runtime.NegotiatedSerializer     // for discovery and for errors that belong to no group

	Admission  admission.Interface   // runs on every write; nil admits everything
	Authorizer authorizer.Authorizer // for checks inside a verb, such as create-on-update

	TypeConverter       managedfields.TypeConverter        // for server-side apply to kinds of Groups
	EquivalentResources runtime.EquivalentResourceRegistry // New registers the kinds of Groups in it

	MaxRequestBodyBytes int64         // of a write; 0 for no limit
	MinRequestTimeout   time.Duration // of watches that ask for no timeout; the actual one is up to twice as long

	Discovery discovery.Addresses        // what /api says about where this server is
	APIs      aggregated.ResourceManager // aggregated discovery of /apis, to which New adds Groups

	// DatastoreFailures counts failed operations of the datastore. Nil if none can fail.
	DatastoreFailures func() uint64

	// Custom serves the groups that are not in Groups, with the discovery of their versions. Nil responds with 404.
	Custom http.Handler
	// CustomConversionFailures counts failed conversions of a group's custom resources. Nil if there are none.
	CustomConversionFailures func(group string) uint64
}

// complete checks required fields and fills in defaults.
func (c Config) complete() (Config, error) {
	switch {
	case c.Serializer == nil:
		return c, errors.New("handlers.Config: Serializer is required")
	case c.TypeConverter == nil:
		return c, errors.New("handlers.Config: TypeConverter is required")
	case c.EquivalentResources == nil:
		return c, errors.New("handlers.Config: EquivalentResources is required")
	case c.Discovery == nil || c.APIs == nil:
		return c, errors.New("handlers.Config: Discovery and APIs are required")
	}
	if c.CustomConversionFailures == nil {
		c.CustomConversionFailures = func(string) uint64 { return 0 }
	}
	if c.Custom == nil {
		c.Custom = http.HandlerFunc(http.NotFound)
	}
	return c, nil
}
