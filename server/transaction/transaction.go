package transaction

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Transaction is operations that are committed together or not at all, in the order in which they are added. Objects are taken as they are
// when they are added. An object that can't be encoded, or whose kind is not known, is an error of Commit. Make it with Client.New. It is not
// safe for concurrent use.
type Transaction struct {
	// Namespace is that of objects that name none. The right to create transactions in it suffices.
	Namespace string
	// FieldManager and FieldValidation are those of the operations, as of requests. Server-side apply needs a FieldManager.
	FieldManager    string
	FieldValidation string
	// ConfirmWithin has the server take the transaction back unless it is confirmed by then, or, with UnlessHealthy, unless everything that it has
	// written is at rest and healthy then.
	ConfirmWithin time.Duration
	UnlessHealthy bool
	// DryRun has the server do everything but commit.
	DryRun bool

	client *Client
	name   string
	spec   spec
	errs   []error
}

// Name returns the name of the transaction.
func (t *Transaction) Name() string { return t.name }

// Create creates an object.
func (t *Transaction) Create(object runtime.Object) {
	t.add(operation{Verb: "create", Object: t.encode(object)})
}

// Update replaces an object, or its subresource: status or finalize. If it has a resourceVersion, the object must have that.
func (t *Transaction) Update(object runtime.Object, subresource ...string) {
	o := operation{Verb: "update", Object: t.encode(object)}
	if len(subresource) > 0 {
		o.Subresource = subresource[0]
	}
	t.add(o)
}

// Scale sets the number of replicas of an object.
func (t *Transaction) Scale(object runtime.Object, replicas int32) {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	t.Patch(object, types.MergePatchType, patch, "scale")
}

// patchTypes are the names of patches in transactions.
var patchTypes = map[types.PatchType]string{
	types.JSONPatchType: "json", types.MergePatchType: "merge", types.StrategicMergePatchType: "strategic",
}

// Patch patches the object that object names, or a subresource of it. For types.ApplyPatchType, see Apply.
func (t *Transaction) Patch(object runtime.Object, kind types.PatchType, patch []byte, subresource ...string) {
	o := operation{Verb: "patch", Target: t.target(object), PatchType: patchTypes[kind], Patch: bytes.Clone(patch)}
	if o.PatchType == "" {
		t.fail(fmt.Errorf("patch of type %q: want a JSON patch, a merge patch or a strategic merge patch", kind))
	}
	if !json.Valid(patch) {
		t.fail(errors.New("the patch is no JSON"))
		o.Patch = nil
	}
	if len(subresource) > 0 {
		o.Subresource = subresource[0]
	}
	t.add(o)
}

// Apply applies an object: server-side apply. It can be anything whose JSON is the configuration, such as an apply configuration of client-go.
// Force takes fields from other managers.
func (t *Transaction) Apply(configuration any, force bool) {
	t.add(operation{Verb: "apply", Object: t.encode(configuration), Force: force})
}

// Delete deletes the object that object names. Of the options, the preconditions, the propagation policy and the grace period count.
func (t *Transaction) Delete(object runtime.Object, options metav1.DeleteOptions) {
	o := operation{Verb: "delete", Target: t.target(object), GracePeriodSeconds: options.GracePeriodSeconds}
	if options.PropagationPolicy != nil {
		o.PropagationPolicy = string(*options.PropagationPolicy)
	}
	if p := options.Preconditions; p != nil {
		o.Preconditions = &preconditions{}
		if p.UID != nil {
			o.Preconditions.UID = string(*p.UID)
		}
		if p.ResourceVersion != nil {
			o.Preconditions.ResourceVersion = *p.ResourceVersion
		}
	}
	t.add(o)
}

// RequireVersion requires that the object that object names exists and has the resourceVersion of object, when the transaction is committed.
func (t *Transaction) RequireVersion(object runtime.Object) {
	m, err := meta.Accessor(object)
	if err != nil {
		t.fail(err)
		return
	}
	if m.GetResourceVersion() == "" {
		t.fail(fmt.Errorf("%s has no resourceVersion that could be required", m.GetName()))
	}
	t.require(object, requirement{ResourceVersion: m.GetResourceVersion()})
}

// RequireField requires that the object that object names exists and that the field at a path, such as .spec.holderIdentity, has a value when
// the transaction begins and, since the object must then stay the same, when it is committed. A nil value requires that the field is absent.
func (t *Transaction) RequireField(object runtime.Object, path string, value any) {
	q := requirement{Field: path}
	if value != nil {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.fail(err)
			return
		}
		q.Value = encoded
	}
	t.require(object, q)
}

// RequireUID requires that the object exists and has the UID of object.
func (t *Transaction) RequireUID(object runtime.Object) {
	m, err := meta.Accessor(object)
	if err != nil {
		t.fail(err)
		return
	}
	t.require(object, requirement{UID: string(m.GetUID())})
}

// RequireAbsent requires that there is no object with the name of object.
func (t *Transaction) RequireAbsent(object runtime.Object) {
	t.require(object, requirement{Absent: true})
}

func (t *Transaction) require(object runtime.Object, q requirement) {
	if named := t.target(object); named != nil {
		q.target = *named
		t.spec.Require = append(t.spec.Require, q)
	}
}

func (t *Transaction) add(o operation) { t.spec.Operations = append(t.spec.Operations, o) }

func (t *Transaction) fail(err error) { t.errs = append(t.errs, err) }

// target returns how the API names an object, nil after an error.
func (t *Transaction) target(object runtime.Object) *target {
	kind, err := t.client.kindOf(object)
	if err != nil {
		t.fail(err)
		return nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		t.fail(err)
		return nil
	}
	version, name := kind.ToAPIVersionAndKind()
	return &target{APIVersion: version, Kind: name, Namespace: m.GetNamespace(), Name: m.GetName()}
}

// encode returns the JSON of an object with its apiVersion and kind, nil after an error.
func (t *Transaction) encode(object any) json.RawMessage {
	encoded, err := json.Marshal(object)
	if err != nil {
		t.fail(err)
		return nil
	}
	known, ok := object.(runtime.Object)
	if !ok || !known.GetObjectKind().GroupVersionKind().Empty() {
		return encoded
	}
	kind, err := t.client.kindOf(known)
	if err != nil {
		t.fail(err)
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &fields); err != nil {
		t.fail(err)
		return nil
	}
	version, name := kind.ToAPIVersionAndKind()
	fields["apiVersion"], _ = json.Marshal(version) // strings can't fail
	fields["kind"], _ = json.Marshal(name)
	encoded, err = json.Marshal(fields)
	if err != nil {
		t.fail(err)
	}
	return encoded
}

// kindOf returns the kind that an object says it has, or that its type has in the scheme.
func (c *Client) kindOf(object runtime.Object) (schema.GroupVersionKind, error) {
	if kind := object.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		return kind, nil
	}
	if c.scheme == nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%T does not say its apiVersion and kind, and there is no scheme", object)
	}
	kinds, _, err := c.scheme.ObjectKinds(object)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}
