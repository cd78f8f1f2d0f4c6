package resources

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/componentstatus"
	configmapstore "k8s.io/kubernetes/pkg/registry/core/configmap/storage"
	eventstore "k8s.io/kubernetes/pkg/registry/core/event/storage"
	limitrangestore "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	namespacestore "k8s.io/kubernetes/pkg/registry/core/namespace/storage"
	pvstore "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	pvcstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podtemplatestore "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	controllerstore "k8s.io/kubernetes/pkg/registry/core/replicationcontroller/storage"
	resourcequotastore "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"
	secretstore "k8s.io/kubernetes/pkg/registry/core/secret/storage"
)

// coreStorages collects the storages of the legacy core group by resource or resource/subresource.
type coreStorages struct {
	config   Config
	client   kubernetes.Interface
	storages map[string]rest.Storage
}

// newCoreGroup builds the legacy core group. Upstream's provider for it can't be used, since it keeps allocations in etcd.
func newCoreGroup(c Config, client kubernetes.Interface, allocators *serviceAllocators) (*genericapiserver.APIGroupInfo, error) {
	b := &coreStorages{config: c, client: client, storages: map[string]rest.Storage{}}
	for _, add := range []func() error{
		b.addPlain,
		b.addNamespaces,
		b.addReplicationControllers,
		func() error { return b.addWorkloads(allocators) },
	} {
		if err := add(); err != nil {
			return nil, fmt.Errorf("building the core group: %w", err)
		}
	}
	b.storages["componentstatuses"] = componentstatus.NewStorage(componentServers)

	group := genericapiserver.NewDefaultAPIGroupInfo(api.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	if enabled := b.enabled(); len(enabled) > 0 {
		group.VersionedResourcesStorageMap["v1"] = enabled
	}
	return &group, nil
}

// enabled returns the storages without those that --runtime-config switches off, including subresources.
func (b *coreStorages) enabled() map[string]rest.Storage {
	enabled := map[string]rest.Storage{}
	for path, storage := range b.storages {
		resource, _, _ := strings.Cut(path, "/")
		if b.config.Versions.ResourceEnabled(corev1.SchemeGroupVersion.WithResource(resource)) {
			enabled[path] = storage
		}
	}
	return enabled
}

// addPlain adds the resources that have no subresource, or only status.
func (b *coreStorages) addPlain() error {
	options := b.config.RESTOptions
	return errors.Join(
		b.plain("configmaps")(configmapstore.NewREST(options)),
		b.plain("secrets")(secretstore.NewREST(options)),
		b.plain("events")(eventstore.NewREST(options, uint64(b.config.EventTTL.Seconds()))),
		b.plain("limitranges")(limitrangestore.NewREST(options)),
		b.plain("podtemplates")(podtemplatestore.NewREST(options)),
		b.withStatus("resourcequotas")(resourcequotastore.NewREST(options)),
		b.withStatus("persistentvolumes")(pvstore.NewREST(options)),
		b.withStatus("persistentvolumeclaims")(pvcstore.NewREST(options)),
	)
}

// plain returns a function that adds a resource without subresources.
func (b *coreStorages) plain(resource string) func(rest.Storage, error) error {
	return func(storage rest.Storage, err error) error {
		b.storages[resource] = storage
		return err
	}
}

// withStatus returns a function that adds a resource whose only subresource is status.
func (b *coreStorages) withStatus(resource string) func(storage, status rest.Storage, err error) error {
	return func(storage, status rest.Storage, err error) error {
		b.storages[resource], b.storages[resource+"/status"] = storage, status
		return err
	}
}

// addNamespaces adds namespaces, with the subresource that confirms the removal of their content.
func (b *coreStorages) addNamespaces() error {
	namespaces, status, finalize, err := namespacestore.NewREST(b.config.RESTOptions)
	if err != nil {
		return err
	}
	b.storages["namespaces"] = namespaces
	b.storages["namespaces/status"] = status
	b.storages["namespaces/finalize"] = finalize
	return nil
}

// addReplicationControllers adds replicationcontrollers, whose scale is a kind of the autoscaling group.
func (b *coreStorages) addReplicationControllers() error {
	controllers, err := controllerstore.NewStorage(b.config.RESTOptions)
	if err != nil {
		return err
	}
	b.storages["replicationcontrollers"] = controllers.Controller
	b.storages["replicationcontrollers/status"] = controllers.Status
	b.storages["replicationcontrollers/scale"] = controllers.Scale
	return nil
}
