package changes

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Change is one write to one object. Its name and its resourceVersion are the revision that it made. Its namespace is the object's, none
// for an object without one. It is never modified.
type Change struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Object    Object `json:"object"`
	Operation string `json:"operation"` // create, update or delete

	User         string `json:"user,omitempty"`
	FieldManager string `json:"fieldManager,omitempty"`
	Address      string `json:"address,omitempty"` // of the client
	AuditID      string `json:"auditID,omitempty"`

	// Changed has the fields that an update changed, except managedFields.
	Changed []Field `json:"changed,omitempty"`
	// ChangedUnknown is set if the version before an update is no longer kept, or can't be read.
	ChangedUnknown bool `json:"changedUnknown,omitempty"`
	// MoreChanged is how many changed fields are left out, since there are too many.
	MoreChanged int `json:"moreChanged,omitempty"`

	// Owners are the object's controller, or its first owner if it has none, the owner of that, and so on, as they were
	// after the change, as far as that is kept and the user may get them.
	Owners []Object `json:"owners,omitempty"`
}

// Object names an object.
type Object struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Resource   string    `json:"resource,omitempty"` // its plural name
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"`
}

// Field is a field that was changed.
type Field struct {
	// Path is such as .spec.template.spec.containers[name=web].image.
	Path string `json:"path"`
	// Old and New are what the field had and has; absent if there was or is no such field.
	Old *apiextensionsv1.JSON `json:"old,omitempty"`
	New *apiextensionsv1.JSON `json:"new,omitempty"`
	// OldBytes and NewBytes are the whole length of a value that was cut. What is left of it is a string: how its JSON begins.
	OldBytes int `json:"oldBytes,omitempty"`
	NewBytes int `json:"newBytes,omitempty"`
}

// ChangeList is a list of changes.
type ChangeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Kept is how far back changes are kept. Those of one list may be fewer. It is absent in pages after the first.
	Kept *Kept `json:"kept,omitempty"`

	Items []Change `json:"items"`
}

// Kept is a moment since which every change is kept.
type Kept struct {
	Revision string      `json:"revision"`
	Since    metav1.Time `json:"since"`
}

// DeepCopyObject implements runtime.Object.
func (c *Change) DeepCopyObject() runtime.Object {
	copied := c.copy()
	return &copied
}

func (c *Change) copy() Change {
	copied := *c
	c.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Owners = slices.Clone(c.Owners)
	copied.Changed = slices.Clone(c.Changed)
	for i := range copied.Changed {
		f := &copied.Changed[i]
		f.Old, f.New = f.Old.DeepCopy(), f.New.DeepCopy()
	}
	return copied
}

// DeepCopyObject implements runtime.Object.
func (l *ChangeList) DeepCopyObject() runtime.Object {
	copied := *l
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	if l.Kept != nil {
		kept := *l.Kept
		copied.Kept = &kept
	}
	copied.Items = make([]Change, len(l.Items))
	for i := range l.Items {
		copied.Items[i] = l.Items[i].copy()
	}
	return &copied
}
