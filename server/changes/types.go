package changes

import (
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

	Object         Object   `json:"object" doc:"The object that was changed."`
	Operation      string   `json:"operation" doc:"What was done: create, update or delete."`
	User           string   `json:"user,omitempty" doc:"Who did it."`
	FieldManager   string   `json:"fieldManager,omitempty" doc:"The field manager of the request, or the first part of its user agent."`
	Address        string   `json:"address,omitempty" doc:"The address of the client, if it is known."`
	AuditID        string   `json:"auditID,omitempty" doc:"The id of the request in the audit log, if it is known."`
	Changed        []Field  `json:"changed,omitempty" doc:"The fields that an update changed, except managedFields."`
	ChangedUnknown bool     `json:"changedUnknown,omitempty" doc:"Set if the version before an update is no longer kept, or can't be read."`
	MoreChanged    int      `json:"moreChanged,omitempty" doc:"How many changed fields are left out, since there are too many."`
	Owners         []Object `json:"owners,omitempty" doc:"The object's controller, or its first owner if it has none, the owner of that, and so on, as they were after the change, as far as that is kept and the user may get them."`
}

// Object names an object.
type Object struct {
	APIVersion string    `json:"apiVersion,omitempty" doc:"The version in which it is stored."`
	Kind       string    `json:"kind,omitempty" doc:"Its kind."`
	Resource   string    `json:"resource,omitempty" doc:"The plural name of its resource."`
	Namespace  string    `json:"namespace,omitempty" doc:"Its namespace, if it has one."`
	Name       string    `json:"name" doc:"Its name."`
	UID        types.UID `json:"uid,omitempty" doc:"Its uid."`
}

// Field is a field that was changed.
type Field struct {
	Path     string                `json:"path" doc:"Its path, such as .spec.template.spec.containers[name=web].image."`
	Old      *apiextensionsv1.JSON `json:"old,omitempty" doc:"The value that it had; absent if there was no such field."`
	New      *apiextensionsv1.JSON `json:"new,omitempty" doc:"The value that it has; absent if there is no such field."`
	OldBytes int                   `json:"oldBytes,omitempty" doc:"The length of the old value, if it was cut. What is left is a string: how its JSON begins."`
	NewBytes int                   `json:"newBytes,omitempty" doc:"The length of the new value, if it was cut."`
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
func (c *Change) DeepCopyObject() runtime.Object { return Copy(c) }

// DeepCopyObject implements runtime.Object.
func (l *ChangeList) DeepCopyObject() runtime.Object { return Copy(l) }
