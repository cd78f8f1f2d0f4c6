package transactions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/server/changes"
)

// Transaction is several writes that are committed together or not at all. Its name can be used once in a day, so that a client that got
// no answer can ask what became of it.
type Transaction struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec" doc:"What to write, and on which conditions. It is not stored."`
	Status Status `json:"status,omitempty" doc:"The answer."`
}

// Spec is what a transaction does.
type Spec struct {
	Require    []Requirement `json:"require,omitempty" doc:"What must be so for the transaction to be committed."`
	Operations []Operation   `json:"operations,omitempty" doc:"The writes in their order. Each sees what the ones before it have written."`

	ConfirmWithin string `json:"confirmWithin,omitempty" doc:"A duration from 1s to 24h, such as 10m. Unless somebody confirms the transaction within it, the server takes the transaction back."`
	UnlessHealthy bool   `json:"unlessHealthy,omitempty" doc:"With confirmWithin: if at the deadline everything that was written has come to rest and is healthy, that confirms the transaction."`
	Stage         Stage  `json:"stage,omitempty" doc:"Instead of operations. Open opens the transaction: requests of the same user with its name in the header Sqube-Transaction join it, at this server alone. Commit commits what they have written, Drop drops it."`
	OpenWithin    string `json:"openWithin,omitempty" doc:"With Open, the time until it is dropped if it was not committed, such as 30m. Default 10m, at most 1h. Without any request, it is dropped after a minute."`
}

// Stage is what is done with an open transaction.
type Stage string

// The stages.
const (
	Open   Stage = "Open"
	Commit Stage = "Commit"
	Drop   Stage = "Drop"
)

// Verb is what an operation does.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Apply  Verb = "apply"
	Delete Verb = "delete"
)

// Operation is a write of one object, as one request would make it.
type Operation struct {
	Verb        Verb                  `json:"verb" doc:"create, update, patch, apply (server-side) or delete."`
	Object      *apiextensionsv1.JSON `json:"object,omitempty" doc:"The object to create, update or apply."`
	Target      *Target               `json:"target,omitempty" doc:"The object to patch or delete. With the subresource scale, also the one to update, since a Scale does not say what it is of."`
	Subresource string                `json:"subresource,omitempty" doc:"The subresource to write: status, scale or finalize, or approval of a CertificateSigningRequest."`

	PatchType string                `json:"patchType,omitempty" doc:"json, merge or strategic. Default merge."`
	Patch     *apiextensionsv1.JSON `json:"patch,omitempty" doc:"The patch."`

	FieldManager    string `json:"fieldManager,omitempty" doc:"As the parameter of a request. Server-side apply needs it."`
	FieldValidation string `json:"fieldValidation,omitempty" doc:"As the parameter of a request."`
	Force           bool   `json:"force,omitempty" doc:"Take fields from other managers; for apply."`

	Preconditions      *Preconditions `json:"preconditions,omitempty" doc:"For delete: which version must be deleted."`
	PropagationPolicy  string         `json:"propagationPolicy,omitempty" doc:"For delete: Orphan, Background or Foreground."`
	GracePeriodSeconds *int64         `json:"gracePeriodSeconds,omitempty" doc:"For delete."`
}

// Preconditions are those of a deletion.
type Preconditions struct {
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Target names an object.
type Target struct {
	APIVersion string `json:"apiVersion" doc:"The group and version of its kind."`
	Kind       string `json:"kind" doc:"Its kind."`
	Namespace  string `json:"namespace,omitempty" doc:"Its namespace, if it has one."`
	Name       string `json:"name" doc:"Its name."`
}

// Requirement is a condition on an object. Conditions are checked on the state before the operations.
type Requirement struct {
	Target          `json:",inline"`
	Absent          bool                  `json:"absent,omitempty" doc:"There must be no such object. Otherwise there must be one."`
	UID             string                `json:"uid,omitempty" doc:"It must have this uid."`
	ResourceVersion string                `json:"resourceVersion,omitempty" doc:"It must have this resourceVersion."`
	Field           string                `json:"field,omitempty" doc:"The path of a field, such as .spec.holderIdentity, which must have this value, or be absent if value is unset."`
	Value           *apiextensionsv1.JSON `json:"value,omitempty"`
}

// Status is the answer to a transaction.
type Status struct {
	ResourceVersion string       `json:"resourceVersion,omitempty" doc:"The revision of the last write. What was read at it, or later, has all of the transaction. Absent after a dry run."`
	User            string       `json:"user,omitempty" doc:"Who made it."`
	AuditID         string       `json:"auditID,omitempty" doc:"The id of the request in the audit log."`
	Time            *metav1.Time `json:"time,omitempty" doc:"When it was committed."`
	OpenUntil       *metav1.Time `json:"openUntil,omitempty" doc:"When it will be dropped, if it is open."`
	Operations      []Result     `json:"operations,omitempty" doc:"What became of each operation."`

	// With spec.confirmWithin:
	State         State        `json:"state,omitempty" doc:"With spec.confirmWithin: Unconfirmed, Confirmed, TakenBack, or Failed, which is tried again."`
	Deadline      *metav1.Time `json:"deadline,omitempty" doc:"With spec.confirmWithin: when the server takes the transaction back."`
	UnlessHealthy bool         `json:"unlessHealthy,omitempty" doc:"Set if being healthy at the deadline confirms it."`
	Settled       *metav1.Time `json:"settled,omitempty" doc:"When it was confirmed or taken back."`
	ConfirmedBy   string       `json:"confirmedBy,omitempty" doc:"Who confirmed it: a user, or health."`
	TakenBackBy   string       `json:"takenBackBy,omitempty" doc:"The transaction that took it back."`
	Left          []Left       `json:"left,omitempty" doc:"What was not taken back."`
	Message       string       `json:"message,omitempty" doc:"Why it was taken back, or why it could not be."`
}

// State says what became of a transaction that must be confirmed.
type State string

// The states.
const (
	AwaitsConfirmation State = "Unconfirmed"
	Confirmed          State = "Confirmed"
	TakenBack          State = "TakenBack"
	TakingBackFailed   State = "Failed"
)

// Left is an object of which something was not taken back.
type Left struct {
	Target `json:",inline"`
	Reason string `json:"reason" doc:"Why."`
}

// Result is what became of an operation.
type Result struct {
	Verb            Verb                  `json:"verb"`
	APIVersion      string                `json:"apiVersion"`
	Kind            string                `json:"kind"`
	Namespace       string                `json:"namespace,omitempty"`
	Name            string                `json:"name"`
	UID             string                `json:"uid,omitempty"`
	ResourceVersion string                `json:"resourceVersion,omitempty" doc:"The object's resourceVersion after the transaction, or that of its deletion."`
	Unchanged       bool                  `json:"unchanged,omitempty" doc:"The object was already so: nothing was written."`
	Warnings        []string              `json:"warnings,omitempty" doc:"What a request would have got as warnings."`
	Object          *apiextensionsv1.JSON `json:"object,omitempty" doc:"The answer to the operation. A get of the transaction does not have it."`
}

// TransactionList is a list of transactions.
type TransactionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Transaction `json:"items"`
}

func init() { changes.Register(&Transaction{}, &TransactionList{}) }

// DeepCopyObject implements runtime.Object.
func (t *Transaction) DeepCopyObject() runtime.Object { return changes.Copy(t) }

// DeepCopyObject implements runtime.Object.
func (l *TransactionList) DeepCopyObject() runtime.Object { return changes.Copy(l) }

// Definition describes the resource.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	return changes.Define(Transaction{}, Resource, "transaction", apiextensionsv1.ClusterScoped, "Transaction is several writes that are committed together or not at all. It is answered when that is done. Each operation is one that its user could send alone.")
}
