package changes

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// maxOwners is how long a chain of owners is followed.
const maxOwners = 5

type ownerReference struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	Controller bool      `json:"controller"`
}

// owners finds the owners of objects for one reader. It remembers those it has found.
type owners struct {
	log    *Log
	rights *rights
	known  map[types.UID][]ownerReference
}

func (l *Log) ownersFor(r *rights) *owners { return &owners{l, r, map[types.UID][]ownerReference{}} }

// of returns the owner that references name, its owner, and so on.
func (o *owners) of(ctx context.Context, namespace string, references []ownerReference) (chain []Object, err error) {
	for len(references) > 0 && len(chain) < maxOwners {
		owner := references[0]
		for _, r := range references {
			if r.Controller {
				owner = r
				break
			}
		}
		found := Object{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
		gv, _ := schema.ParseGroupVersion(owner.APIVersion)
		resource, namespaced, served := o.log.Served.ResourceOf(schema.GroupKind{Group: gv.Group, Kind: owner.Kind})
		if served {
			found.Resource = resource.Resource
		}
		if namespaced {
			found.Namespace = namespace
		}
		chain = append(chain, found)
		if !served {
			break
		}
		if references, err = o.ownersOf(ctx, resource, found); err != nil {
			return nil, err
		}
	}
	return chain, nil
}

// ownersOf returns the owners of an object. They are unknown if it no longer exists, and unless the user may get it.
func (o *owners) ownersOf(ctx context.Context, resource schema.GroupResource, of Object) ([]ownerReference, error) {
	if references, known := o.known[of.UID]; known {
		return references, nil
	}
	allowed, err := o.rights.mayGet(ctx, resource, of.Namespace, of.Name)
	if err != nil || !allowed {
		return nil, err
	}
	key := of.Name
	if of.Namespace != "" {
		key = of.Namespace + "/" + key
	}
	live, _, err := o.log.Store.Get(ctx, sqlstore.Resource{Group: resource.Group, Name: resource.Resource}, key)
	if err != nil {
		return nil, err
	}
	var owner struct {
		Metadata struct {
			UID             types.UID        `json:"uid"`
			OwnerReferences []ownerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if live != nil {
		data, _, err := apistorage.Decrypt(ctx, o.log.Transformer(resource), live.Value, resources.KeyPrefix(resource)+"/"+key)
		if err == nil {
			err = json.Unmarshal(data, &owner)
		}
		if err != nil {
			return nil, err
		}
	}
	if owner.Metadata.UID != of.UID {
		owner.Metadata.OwnerReferences = nil
	}
	o.known[of.UID] = owner.Metadata.OwnerReferences
	return owner.Metadata.OwnerReferences, nil
}
