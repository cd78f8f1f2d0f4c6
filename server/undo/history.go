package undo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
)

// History is what has happened, as far as the caller may know it.
type History interface {
	// Changes calls yield with the changes of q, the newest first, without those of objects that the caller may not get. An error from
	// yield ends the walk and is returned.
	Changes(ctx context.Context, q Query, yield func(*Change) error) error
}

// Query selects changes.
type Query struct {
	// Group and Resource limit them to a resource, unless Resource is "".
	Group, Resource string
	// Namespace limits them to a namespace, "" to objects without one; nil means all.
	Namespace *string
	Name      string // "" for all
	// After and Before are revisions, excluded; 0 for no limit.
	After, Before int64
}

// Change is one version of an object that replaced another.
type Change struct {
	Revision  int64
	Operation Operation
	Group     string
	Resource  string
	Namespace string
	Name      string
	UID       string
	User      string
	Manager   string
	Written   time.Time
	// Before and After are the object in its storage version. Before is nil if it is no longer kept, or there was none.
	Before, After []byte
}

// Operation is what a change did.
type Operation string

// The operations.
const (
	Created Operation = "create"
	Updated Operation = "update"
	Deleted Operation = "delete"
)

func (c *Change) key() key { return key{c.Group, c.Resource, c.Namespace, c.Name} }

func (c *Change) reference() ChangeReference {
	return ChangeReference{Revision: c.Revision, Operation: string(c.Operation), Time: metav1.NewTime(c.Written.UTC().Truncate(time.Second)), User: c.User, FieldManager: c.Manager}
}

// ends reports whether the change is the one that marked the object for deletion.
func (c *Change) ends() bool { return c.Operation != Deleted && marked(c.After) && !marked(c.Before) }

// marked reports whether an object is being deleted.
func marked(value []byte) bool {
	if !bytes.Contains(value, []byte(`"deletionTimestamp"`)) {
		return false
	}
	var object metav1.PartialObjectMetadata
	return json.Unmarshal(value, &object) == nil && object.DeletionTimestamp != nil
}

// owners returns the uids of an object's owners.
func owners(value []byte) (uids []string) {
	if !bytes.Contains(value, []byte(`"ownerReferences"`)) {
		return nil
	}
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(value, &object) == nil {
		for _, owner := range object.OwnerReferences {
			uids = append(uids, string(owner.UID))
		}
	}
	return uids
}

// key names an object.
type key struct{ group, resource, namespace, name string }

func (k key) String() string {
	name := k.resource
	if k.group != "" {
		name += "." + k.group
	}
	if k.namespace != "" {
		return name + " " + k.namespace + "/" + k.name
	}
	return name + " " + k.name
}

func (k key) query() Query {
	return Query{Group: k.group, Resource: k.resource, Namespace: &k.namespace, Name: k.name}
}

var (
	namespaces  = key{resource: "namespaces"}
	definitions = key{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"}
)

func (k key) of(kind key) bool { return k.group == kind.group && k.resource == kind.resource }

// errEnough ends a walk.
var errEnough = errors.New("enough has been read")

// walk is History.Changes, which yield may end with errEnough.
func walk(ctx context.Context, h History, q Query, yield func(*Change) error) error {
	err := h.Changes(ctx, q, yield)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func decode(value []byte) (map[string]any, error) {
	if len(value) == 0 {
		return nil, nil
	}
	var object map[string]any
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, fmt.Errorf("an object in history is not JSON: %w", err)
	}
	return object, nil
}
