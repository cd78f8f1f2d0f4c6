package adopt

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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apiserver/pkg/storage/value"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Adopter takes over keys and values. Its methods are not for concurrent use.
type Adopter struct {
	prefix    string
	keys      *encryption.Encryption
	resources map[string]*resource // by path, which comes between the prefix and the namespace or name
}

// resource is how one resource is stored here.
type resource struct {
	name    schema.GroupResource
	storage *apistorage.Storage
}

// New knows all built-in resources. All keys begin with prefix, which is kube-apiserver's --etcd-prefix and ends with a
// slash. Encrypted values are opened with the keys, and what is taken over is encrypted as they say.
func New(prefix string, keys *encryption.Encryption) (*Adopter, error) {
	builtIn, err := builtIn(keys)
	if err != nil {
		return nil, err
	}
	return &Adopter{prefix, keys, builtIn}, nil
}

// Outcome is what becomes of a key.
type Outcome struct {
	Resource string // such as deployments.apps, or what stands for it in the key where there is no such resource
	Object   string // "namespace/name", or "name"
	// Write is what would have stored the object. Nil where it is not taken, for the reason.
	Write  *sqlstore.Write
	Reason string
}

// Definitions is the path below the prefix where CustomResourceDefinitions are.
const Definitions = apiextensions.GroupName + "/customresourcedefinitions/"

// Define makes the custom resources of a stored CustomResourceDefinition known. One that can't be read is passed over:
// Adopt tells why.
func (a *Adopter) Define(ctx context.Context, key string, stored []byte) error {
	_, name, definitions := a.find(strings.TrimPrefix(key, a.prefix))
	_, obj, err := a.adopt(ctx, definitions, key, name, stored)
	if err != nil {
		return nil
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := apiextensionsscheme.Scheme.Convert(obj, definition, nil); err != nil {
		return err
	}
	made, err := crd.NewStorage(definition, a.keys.Storage(apistorage.Decorator(nil, nil)))
	if err != nil {
		return err
	}
	custom := schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
	a.resources[custom.Group+"/"+custom.Resource] = &resource{custom, made.(*apistorage.Storage)}
	return nil
}

// left are the paths whose keys belong to servers, and why they are not taken.
var left = map[string]string{
	"masterleases":     "it says that an API server which is left behind is alive",
	"peerserverleases": "it says that an API server which is left behind is alive",
	"ranges":           "sqube finds out anew which addresses and ports Services use",
	"health":           "it is no object: kine probes itself with it",
}

// Adopt takes over a key. Custom resources are known after Define.
func (a *Adopter) Adopt(ctx context.Context, key string, stored []byte) Outcome {
	path, object, r := a.find(strings.TrimPrefix(key, a.prefix))
	o := Outcome{Resource: path, Object: object}
	if r == nil {
		o.Reason = left[path]
		switch {
		case o.Reason != "":
		case strings.Contains(path, "/"):
			group, resource, _ := strings.Cut(path, "/")
			o.Resource, o.Reason = resource+"."+group, "there is no CustomResourceDefinition of it"
		default:
			o.Reason = "sqube does not serve this resource"
		}
		return o
	}
	o.Resource = r.name.String()
	w, obj, err := a.adopt(ctx, r, key, object, stored)
	switch {
	case err != nil:
		o.Reason = err.Error()
	case isIdentity(r, obj):
		o.Reason = "it is the identity of an API server which is left behind"
	default:
		o.Write = w
	}
	return o
}

// find takes a key apart, without its prefix. r is nil where no resource has it.
func (a *Adopter) find(key string) (path, object string, r *resource) {
	first, object, _ := strings.Cut(key, "/")
	if second, rest, ok := strings.Cut(object, "/"); ok {
		path := first + "/" + second
		// Only the group of a custom or aggregated resource has a dot.
		if r := a.resources[path]; r != nil || strings.Contains(first, ".") {
			return path, rest, r
		}
	}
	return first, object, a.resources[first]
}

func (a *Adopter) adopt(ctx context.Context, r *resource, key, object string, stored []byte) (*sqlstore.Write, runtime.Object, error) {
	// The whole key is authenticated with the value.
	data, _, err := a.keys.Transformer(r.name).TransformFromStorage(ctx, stored, value.DefaultContext(key))
	if err != nil {
		return nil, nil, fmt.Errorf("it is encrypted, and --encryption-provider-config does not open it: %w", err)
	}
	if data, err = withoutCBOR(data); err != nil {
		return nil, nil, fmt.Errorf("its value can't be decoded: %w", err)
	}
	w, obj, err := r.storage.ImportWrite(ctx, object, data)
	if err != nil {
		return nil, nil, fmt.Errorf("its value can't be taken: %w", err)
	}
	return w, obj, nil
}

// selfDescribed begins CBOR in storage (KEP-4222): the tag of RFC 8949, section 3.4.6.
var selfDescribed = []byte{0xd9, 0xd9, 0xf7}

// withoutCBOR makes JSON of CBOR, which the codecs of storages don't know, and leaves the rest as it is.
func withoutCBOR(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, selfDescribed) {
		return data, nil
	}
	var object map[string]any
	if err := direct.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// isIdentity says whether an object is the Lease by which a kube-apiserver, or sqube, tells that it is there.
func isIdentity(r *resource, obj runtime.Object) bool {
	if r.name != coordinationv1.Resource("leases") {
		return false
	}
	accessor, err := meta.Accessor(obj)
	return err == nil && accessor.GetLabels()[controlplane.IdentityLeaseComponentLabelKey] == controlplane.KubeAPIServer
}
