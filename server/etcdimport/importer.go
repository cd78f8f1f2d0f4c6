package etcdimport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/sqube/sqube/server/builtin"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Importer converts keys and values. Its methods must not be called concurrently.
type Importer struct {
	prefix    string
	keys      *encryption.Encryption
	resources map[string]*resource // by path: the part of a key between the prefix and the namespace or name
}

type resource struct {
	name    schema.GroupResource
	storage *apistorage.Storage
}

// New returns an importer for all built-in resources. All keys begin with prefix, which is kube-apiserver's --etcd-prefix and
// ends with a slash. keys decrypts the values, and encrypts the writes.
func New(prefix string, keys *encryption.Encryption) (*Importer, error) {
	builtIn, err := builtIn(keys)
	if err != nil {
		return nil, err
	}
	return &Importer{prefix, keys, builtIn}, nil
}

// Over returns an importer of objects that the API has returned, with the storages of a server's built-in resources but definitions. keys
// encrypts those, and what they define.
func Over(storages map[schema.GroupResource]*apistorage.Storage, keys *encryption.Encryption) (*Importer, error) {
	i := &Importer{keys: keys, resources: map[string]*resource{}}
	for name, s := range storages {
		i.resources[name.Group+"/"+name.Resource] = &resource{name, s}
	}
	// A server has other storages of these, too, which leave much out.
	whole := decorate.Storage(keys.Storage(apistorage.Decorator(nil, resources.Kinds)), func(name schema.GroupResource, made storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		if s, ok := made.(*apistorage.Storage); ok {
			i.resources[name.Group+"/"+name.Resource] = &resource{name, s}
		}
		return made, destroy, nil
	})
	_, err := crd.NewGroup(whole)
	return i, err
}

// Result is the result for a key.
type Result struct {
	Resource string // such as deployments.apps, or that part of the key if there is no such resource
	Object   string // "namespace/name", or "name"
	// Write is the write that would have stored the object. If it is nil, Reason is why.
	Write  *sqlstore.Write
	Reason string
	// Metadata is the object's, nil without Write.
	Metadata metav1.Object
}

// Identity is the reason why the Lease of a server is skipped.
const Identity = "it is the identity of one of the old API servers"

// Definitions is the path of CustomResourceDefinitions below the prefix.
const Definitions = apiextensions.GroupName + "/customresourcedefinitions/"

// Define adds the custom resources of a stored CustomResourceDefinition. It skips a definition that can't be read, since Import
// reports it.
func (i *Importer) Define(ctx context.Context, key string, stored []byte) error {
	_, name, definitions := i.find(strings.TrimPrefix(key, i.prefix))
	_, obj, err := i.convert(ctx, definitions, key, name, stored)
	if err != nil {
		return nil
	}
	return i.define(obj)
}

// define adds the custom resources of a definition.
func (i *Importer) define(obj runtime.Object) error {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := apiextensionsscheme.Scheme.Convert(obj, definition, nil); err != nil {
		return err
	}
	made, err := crd.NewStorage(definition, i.keys.Storage(apistorage.Decorator(nil, nil)))
	if err != nil {
		return err
	}
	custom := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
	i.resources[custom.Group+"/"+custom.Resource] = &resource{custom, made.(*apistorage.Storage)}
	return nil
}

// skipped maps the paths of keys that belong to servers to the reason why they are not imported.
var skipped = map[string]string{
	"masterleases":     "it says that one of the old API servers is alive",
	"peerserverleases": "it says that one of the old API servers is alive",
	"ranges":           "sqube recomputes which addresses and ports Services use",
	"health":           "it is not an object: kine uses it for health checks",
}

// Import converts a key and its value. Custom resources need Define first.
func (i *Importer) Import(ctx context.Context, key string, stored []byte) Result {
	path, object, r := i.find(strings.TrimPrefix(key, i.prefix))
	o := Result{Resource: path, Object: object}
	if r == nil {
		o.Reason = skipped[path]
		switch {
		case o.Reason != "":
		case strings.Contains(path, "/"):
			group, resource, _ := strings.Cut(path, "/")
			o.Resource, o.Reason = resource+"."+group, "it has no CustomResourceDefinition"
		default:
			o.Reason = "sqube does not serve this resource"
		}
		return o
	}
	o.Resource = r.name.String()
	w, obj, err := i.convert(ctx, r, key, object, stored)
	switch {
	case err != nil:
		o.Reason = err.Error()
	case isIdentity(r, obj):
		o.Reason = Identity
	default:
		o.Write = w
	}
	return o
}

// Serves reports whether objects of a resource can be imported.
func (i *Importer) Serves(name schema.GroupResource) bool { return i.byName(name) != nil }

func (i *Importer) byName(name schema.GroupResource) *resource {
	for _, r := range i.resources {
		if r.name == name {
			return r
		}
	}
	return nil
}

// ImportObject is Import for an object that the API has returned, in JSON or protobuf and any version. object is "namespace/name", or
// "name". A definition also adds its custom resources.
func (i *Importer) ImportObject(ctx context.Context, name schema.GroupResource, object string, data []byte) (Result, error) {
	o, r := Result{Resource: name.String(), Object: object}, i.byName(name)
	if r == nil {
		o.Reason = "sqube does not serve this resource"
		return o, nil
	}
	w, obj, err := r.storage.ImportWrite(ctx, object, data)
	switch {
	case err != nil:
		o.Reason = fmt.Sprintf("its value can't be stored: %v", err)
		return o, nil
	case isIdentity(r, obj):
		o.Reason = Identity
		return o, nil
	case name == apiextensions.Resource("customresourcedefinitions"):
		err = i.define(obj)
	}
	o.Write = w
	o.Metadata, _ = meta.Accessor(obj) // the objects of all resources have it
	return o, err
}

// find splits a key, given without its prefix. r is nil if the key does not belong to a resource.
func (i *Importer) find(key string) (path, object string, r *resource) {
	first, object, _ := strings.Cut(key, "/")
	if second, rest, ok := strings.Cut(object, "/"); ok {
		path := first + "/" + second
		// Only the group of a custom or aggregated resource has a dot.
		if r := i.resources[path]; r != nil || strings.Contains(first, ".") {
			return path, rest, r
		}
	}
	return first, object, i.resources[first]
}

func (i *Importer) convert(ctx context.Context, r *resource, key, object string, stored []byte) (*sqlstore.Write, runtime.Object, error) {
	// The whole key is authenticated with the value.
	data, _, err := i.keys.Transformer(r.name).TransformFromStorage(ctx, stored, value.DefaultContext(key))
	if err != nil {
		return nil, nil, i.keys.Explain(err)
	}
	if data, err = cborToJSON(data); err != nil {
		return nil, nil, fmt.Errorf("its value can't be decoded: %w", err)
	}
	w, obj, err := r.storage.ImportWrite(ctx, object, data)
	if err != nil {
		return nil, nil, fmt.Errorf("its value can't be stored: %w", err)
	}
	return w, obj, nil
}

// selfDescribed is the prefix of CBOR in storage (KEP-4222): the tag of RFC 8949, section 3.4.6.
var selfDescribed = []byte{0xd9, 0xd9, 0xf7}

// cborToJSON converts CBOR, which the storage codecs don't support, to JSON. Other data is returned unchanged.
func cborToJSON(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, selfDescribed) {
		return data, nil
	}
	var object map[string]any
	if err := direct.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// isIdentity reports whether an object is the identity Lease of a kube-apiserver or a sqube.
func isIdentity(r *resource, obj runtime.Object) bool {
	if r.name != coordinationv1.Resource("leases") {
		return false
	}
	accessor, err := meta.Accessor(obj)
	return err == nil && accessor.GetLabels()[controlplane.IdentityLeaseComponentLabelKey] == controlplane.KubeAPIServer
}

// builtIn returns all built-in resources by the paths under which kube-apiserver stores their objects.
func builtIn(keys *encryption.Encryption) (map[string]*resource, error) {
	built, err := builtin.New(keys.Storage)
	if err != nil {
		return nil, err
	}
	byPath := map[string]*resource{}
	for name, s := range built.Storages {
		byPath[built.Options.EtcdPath(name)] = &resource{name, s}
	}
	return byPath, nil
}
