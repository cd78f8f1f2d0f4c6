package handlers

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"github.com/sqube/sqube/server/bodies"
)

// API serves the built-in groups. It does not change after New.
type API struct {
	config   Config
	groups   map[string]methods                     // the documents of all groups except core
	versions map[schema.GroupVersion]*servedVersion // the served versions
	legacy   aggregated.ResourceManager             // aggregated discovery of /api
	bodies   *bodies.Limiter
}

// servedVersion has the endpoints and the discovery of one group version.
type servedVersion struct {
	*VersionDescription
	discovery methods
	// endpoints are made at the first request, since most servers get requests for few groups.
	endpoints func() endpoints
}

// endpoints are those of a version by resource or resource/subresource.
type endpoints map[string]*endpoint

// New serves every resource in the groups. It registers their kinds in Config.EquivalentResources and their discovery in Config.APIs.
func New(c Config) *API {
	a := &API{
		config:   c,
		groups:   map[string]methods{},
		versions: map[schema.GroupVersion]*servedVersion{},
		legacy:   aggregated.NewResourceManager("api"),
		bodies:   bodies.NewLimiter(c.MaxRequestBodyBytes),
	}
	for _, group := range c.Groups {
		group.Register(c.EquivalentResources)
		for _, version := range group.Versions {
			a.addVersion(group, version)
		}
		if len(group.Versions) > 0 && group.Name != "" {
			a.groups[group.Name] = groupDocument(group.Versions)
		}
	}
	return a
}

// HasVersion reports whether a version is built in.
func (a *API) HasVersion(version schema.GroupVersion) bool { return a.versions[version] != nil }

// Serves reports whether a built-in version has the resource.
func (a *API) Serves(version schema.GroupVersion, resource string) bool {
	served, ok := a.versions[version]
	if !ok {
		return false
	}
	_, ok = served.Resources[resource]
	return ok
}

func (a *API) addVersion(group *Group, version *VersionDescription) {
	served := &servedVersion{VersionDescription: version}
	served.endpoints = sync.OnceValue(func() endpoints { return a.endpointsOf(group, version) })
	a.addVersionDiscovery(served)
	a.versions[version.GroupVersion] = served
}

// endpointsOf makes the endpoints of one version. It panics if a storage can't be served, which is a bug.
func (a *API) endpointsOf(group *Group, version *VersionDescription) endpoints {
	info, err := group.Info()
	if err != nil {
		panic(err)
	}
	made := endpoints{}
	storages := info.VersionedResourcesStorageMap[version.Version]
	for path, described := range version.Resources {
		t, err := newTarget(info, version.GroupVersion, path, storages)
		if err != nil {
			panic(err)
		}
		made[path] = newEndpoint(a.config, t, described, a.bodies)
	}
	return made
}

// Config is what the handlers need from the rest of the server.
type Config struct {
	Groups []*Group // the built-in groups

	Admission  admission.Interface   // runs on every write; nil admits everything
	Authorizer authorizer.Authorizer // for checks inside a verb, such as create-on-update

	TypeConverter       managedfields.TypeConverter        // for server-side apply to kinds of Groups
	EquivalentResources runtime.EquivalentResourceRegistry // New registers the kinds of Groups in it

	MaxRequestBodyBytes int64         // of a write; 0 for no limit
	MinRequestTimeout   time.Duration // of watches that set no timeout; the actual one is up to twice as long

	Discovery discovery.Addresses        // the server's addresses for /api
	APIs      aggregated.ResourceManager // aggregated discovery of /apis, to which New adds Groups

	// DatastoreFailures returns the number of failed datastore operations. Nil if none can fail.
	DatastoreFailures func() uint64

	// Custom serves the groups that are not in Groups, with the discovery of their versions.
	Custom http.Handler
	// CustomConversionFailures returns the number of failed conversions of a group's custom resources.
	CustomConversionFailures func(group string) uint64
}
