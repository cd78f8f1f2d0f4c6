package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ClusterState is the answer to a GET of the subresource state of a Cluster: which objects differ from a former state, and how. Its
// resourceVersion is that of the later state; if there is more, it has a continue token.
//
// +kubebuilder:object:generate=false
type ClusterState struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Since is the resourceVersion of the former state: the parameter since of the request, or else where the cluster was forked or restored.
	// "0" is that of a cluster without any object.
	Since string `json:"since"`
	// Items are ordered by resource, namespace and name.
	Items []ObjectDifference `json:"items"`
}

// ObjectDifference is an object that differs between two states.
//
// +kubebuilder:object:generate=false
type ObjectDifference struct {
	// Operation is created, updated or deleted. An object that was deleted and created again is updated.
	Operation Operation `json:"operation"`

	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Resource   string    `json:"resource"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"`
	// Recreated is set if the object has another uid than before.
	Recreated bool `json:"recreated,omitempty"`
	// ResourceVersion is that of the object in the later state, none if it was deleted.
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// User made the last change that can be seen here, in the name of ImpersonatedUser if there is one, at Time.
	User             string      `json:"user,omitempty"`
	ImpersonatedUser string      `json:"impersonatedUser,omitempty"`
	Time             metav1.Time `json:"time"`

	// Changed are the fields that differ, of an object that was updated.
	Changed []FieldDifference `json:"changed,omitempty"`
	// Patch is a JSON merge patch that makes the later state of the former one: of an object that was created, what its creator set; none if it was
	// deleted. Secret values that the user may not get are replaced by their sizes.
	Patch json.RawMessage `json:"patch,omitempty"`
}

// FieldDifference is a field that differs.
//
// +kubebuilder:object:generate=false
type FieldDifference struct {
	// Path is such as .spec.template.spec.containers[name=web].image.
	Path string `json:"path"`
	// From and To are the JSON of the values, none if there is none. Long ones are cut, of secret ones there are sizes.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Operation is what happened to an object.
type Operation string

// The operations.
const (
	Created Operation = "created"
	Updated Operation = "updated"
	Deleted Operation = "deleted"
)
