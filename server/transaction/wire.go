package transaction

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	apiVersion = "history.sqube.io/v1alpha1"
	resource   = "transactions"
	// operationCause and requirementCause are the types of causes that name an operation and a requirement.
	operationCause   = "TransactionOperation"
	requirementCause = "TransactionRequirement"
)

// Header is the header of requests that join an open transaction: its name. RefusedHeader is that of answers to requests that a transaction
// can't have, such as a watch, or that come after its end: why, in ASCII.
const (
	Header        = "Sqube-Transaction"
	RefusedHeader = "Sqube-Transaction-Refused"
)

// wire is a Transaction of the API.
type wire struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       spec              `json:"spec"`
	Status     Result            `json:"status,omitzero"`
}

type spec struct {
	Require    []requirement `json:"require,omitempty"`
	Operations []operation   `json:"operations,omitempty"`
	Stage      string        `json:"stage,omitempty"`
	OpenWithin string        `json:"openWithin,omitempty"`

	ConfirmWithin string `json:"confirmWithin,omitempty"`
	UnlessHealthy bool   `json:"unlessHealthy,omitempty"`
}

type target struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

type requirement struct {
	target
	Absent          bool            `json:"absent,omitempty"`
	UID             string          `json:"uid,omitempty"`
	ResourceVersion string          `json:"resourceVersion,omitempty"`
	Field           string          `json:"field,omitempty"`
	Value           json.RawMessage `json:"value,omitempty"`
}

type operation struct {
	Verb        string          `json:"verb"`
	Object      json.RawMessage `json:"object,omitempty"`
	Target      *target         `json:"target,omitempty"`
	Subresource string          `json:"subresource,omitempty"`

	PatchType string          `json:"patchType,omitempty"`
	Patch     json.RawMessage `json:"patch,omitempty"`

	FieldManager    string `json:"fieldManager,omitempty"`
	FieldValidation string `json:"fieldValidation,omitempty"`
	Force           bool   `json:"force,omitempty"`

	Preconditions      *preconditions `json:"preconditions,omitempty"`
	PropagationPolicy  string         `json:"propagationPolicy,omitempty"`
	GracePeriodSeconds *int64         `json:"gracePeriodSeconds,omitempty"`
}

type preconditions struct {
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Result is what became of a transaction.
type Result struct {
	// Name is that of the transaction.
	Name string `json:"-"`
	// ResourceVersion is that of its last write: what is read at it, or later, has all of the transaction. It is "" after a dry run.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// User is who made it, AuditID the id of its request in the audit log, and Time when it was committed.
	User    string       `json:"user,omitempty"`
	AuditID string       `json:"auditID,omitempty"`
	Time    *metav1.Time `json:"time,omitempty"`
	// OpenUntil is when it will be dropped, if it is open.
	OpenUntil *metav1.Time `json:"openUntil,omitempty"`
	// Deadline is when the server takes it back, unless it is confirmed.
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// Operations says what became of each operation.
	Operations []OperationResult `json:"operations,omitempty"`
}

// OperationResult is what became of an operation.
type OperationResult struct {
	Verb       string `json:"verb"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
	// ResourceVersion is that of the object after the transaction, or of its deletion.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Unchanged says that the object was already so: nothing was written.
	Unchanged bool `json:"unchanged,omitempty"`
	// Warnings are those that a request would have got.
	Warnings []string `json:"warnings,omitempty"`
	// Object is the JSON of the object, or of the answer to a deletion. It is nil in what Client.Get returns.
	Object json.RawMessage `json:"object,omitempty"`
}

// Into decodes the object as it is after the transaction.
func (o *OperationResult) Into(object any) error { return json.Unmarshal(o.Object, object) }
