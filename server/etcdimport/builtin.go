package etcdimport

import (
	"net"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// builtIn builds the storages of all built-in resources like a server, whether they are served by default or not, and returns
// them by the paths under which kube-apiserver stores their objects.
func builtIn(keys *encryption.Encryption) (map[string]*resource, error) {
	storages := map[schema.GroupResource]*apistorage.Storage{}
	collected := collect(keys.Storage(apistorage.Decorator(nil, nil)), storages)
	versions, err := resources.ParseRuntimeConfig(map[string]string{"api/all": "true"})
	if err != nil {
		return nil, err
	}
	options, err := resources.NewRESTOptions(versions, collected)
	if err != nil {
		return nil, err
	}
	// No requests are sent over the loopback.
	unused := loopback.New().Config()
	client, err := kubernetes.NewForConfig(unused)
	if err != nil {
		return nil, err
	}
	built, err := resources.New(resources.Config{
		RESTOptions: options, Versions: versions, Loopback: unused, Informers: informers.NewSharedInformerFactory(client, 0),
		Services: resources.Services{
			IPRange: net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(24, 32)}, NodePorts: kubeoptions.DefaultServiceNodePortRange,
		},
		Authorizer: authorizerfactory.NewAlwaysDenyAuthorizer(),
	})
	if err != nil {
		return nil, err
	}
	built.Destroy()
	if _, err := crd.NewGroup(collected); err != nil {
		return nil, err
	}
	byPath := map[string]*resource{}
	for name, s := range storages {
		byPath[options.EtcdPath(name)] = &resource{name, s}
	}
	return byPath, nil
}

// collect returns a decorator that makes storages with next and records each of them.
func collect(next generic.StorageDecorator, storages map[schema.GroupResource]*apistorage.Storage) generic.StorageDecorator {
	return decorate.Storage(next, func(resource schema.GroupResource, made storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		if s, ok := made.(*apistorage.Storage); ok {
			storages[resource] = s
		}
		return made, destroy, nil
	})
}
