package handlers

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

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
	discovery methods
	endpoints map[string]*endpoint // by resource or resource/subresource
}

// New builds the endpoints of every resource in the groups. It registers their kinds in Config.EquivalentResources and
// their discovery in Config.APIs. It returns an error if a storage can't be served, which is a bug.
func New(c Config) (*API, error) {
	a := &API{
		config:   c,
		groups:   map[string]methods{},
		versions: map[schema.GroupVersion]*servedVersion{},
		legacy:   aggregated.NewResourceManager("api"),
		bodies:   bodies.NewLimiter(c.MaxRequestBodyBytes),
	}
	for _, group := range c.Groups {
		if err := a.addGroup(group); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Serves reports whether a built-in version has the resource.
func (a *API) Serves(version schema.GroupVersion, resource string) bool {
	served, ok := a.versions[version]
	return ok && served.endpoints[resource] != nil
}

// addGroup builds the versions of one group that have resources.
func (a *API) addGroup(group *genericapiserver.APIGroupInfo) error {
	var versions []schema.GroupVersion
	for _, version := range group.PrioritizedVersions {
		storages := group.VersionedResourcesStorageMap[version.Version]
		if len(storages) == 0 {
			continue
		}
		if err := a.addVersion(group, version, storages); err != nil {
			return err
		}
		versions = append(versions, version)
	}
	if len(versions) > 0 && versions[0].Group != "" {
		a.groups[versions[0].Group] = groupDocument(versions)
	}
	return nil
}

// addVersion builds the endpoints of one version, in the order of their names.
func (a *API) addVersion(group *genericapiserver.APIGroupInfo, version schema.GroupVersion, storages map[string]rest.Storage) error {
	paths := slices.Sorted(maps.Keys(storages))

	served := &servedVersion{endpoints: map[string]*endpoint{}}
	resources := make([]metav1.APIResource, 0, len(paths))
	for _, path := range paths {
		t, err := newTarget(group, version, path, storages)
		if err != nil {
			return fmt.Errorf("serving %s of %s: %w", path, version, err)
		}
		endpoint, scope, err := newEndpoint(a.config, t, a.bodies)
		if err != nil {
			return fmt.Errorf("serving %s of %s: %w", path, version, err)
		}
		resource, err := describe(t, endpoint, scope.Kind)
		if err != nil {
			return fmt.Errorf("describing %s of %s: %w", path, version, err)
		}
		served.endpoints[path] = endpoint
		resources = append(resources, resource)
		a.config.EquivalentResources.RegisterKindFor(scope.Resource, scope.Subresource, scope.Kind)
	}
	if err := a.addVersionDiscovery(version, served, resources); err != nil {
		return err
	}
	a.versions[version] = served
	return nil
}

func newTarget(group *genericapiserver.APIGroupInfo, version schema.GroupVersion, path string, storages map[string]rest.Storage) (target, error) {
	resource, subresource, _ := strings.Cut(path, "/")
	parent, ok := storages[resource].(rest.Scoper)
	if !ok {
		return target{}, fmt.Errorf("the storage of %q does not implement rest.Scoper", resource)
	}
	return target{
		group:       group,
		version:     version,
		resource:    resource,
		subresource: subresource,
		namespaced:  parent.NamespaceScoped(),
		storage:     storages[path],
	}, nil
}

// Config is what the handlers need from the rest of the server.
type Config struct {
	Groups []*genericapiserver.APIGroupInfo // the built-in groups; each brings its scheme, codecs and storages

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
