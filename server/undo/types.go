package undo

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/server/changes"
)

// Undo plans, and with spec.apply applies, what takes changes back. It is not stored.
type Undo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec" doc:"What to undo: either object or changes."`
	Status Status `json:"status,omitempty" doc:"The answer."`
}

// Spec is what to undo: exactly one of object and changes.
type Spec struct {
	Object     *ObjectReference `json:"object,omitempty" doc:"What to bring back. With a Namespace or a CustomResourceDefinition comes what was in it."`
	To         *Moment          `json:"to,omitempty" doc:"The moment to which the object is brought back. If it is unset, the object must have been deleted."`
	Changes    *ChangeSelector  `json:"changes,omitempty" doc:"The changes to take back, whatever they are of. It must have user, impersonatedUser, fieldManager, auditID, transaction, since or afterRevision."`
	Force      bool             `json:"force,omitempty" doc:"Overwrite later changes by others."`
	Apply      bool             `json:"apply,omitempty" doc:"Apply the plan, all of it or nothing, as one transaction, unless that has no room for it. Otherwise it is only returned."`
	Operations bool             `json:"operations,omitempty" doc:"Without apply: also return what the steps of the plan write, to try it on a copy; in a mirror, to apply it in the cluster itself."`
	Partial    bool             `json:"partial,omitempty" doc:"With apply: apply the plan step by step, and go on after a step that fails."`
}

// ObjectReference names an object, by its kind or by its resource.
type ObjectReference struct {
	APIVersion string `json:"apiVersion,omitempty" doc:"The group of the kind, with a version."`
	Kind       string `json:"kind,omitempty" doc:"Either the kind,"`
	Group      string `json:"group,omitempty"`
	Resource   string `json:"resource,omitempty" doc:"or the group and the resource."`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// Moment is exactly one of its fields.
type Moment struct {
	Revision int64        `json:"revision,omitempty" doc:"A resourceVersion."` // what was written up to it stays
	Before   int64        `json:"before,omitempty" doc:"The revision of the first change to take back."`
	Time     *metav1.Time `json:"time,omitempty"`
}

// ChangeSelector selects changes. At least one of user, impersonatedUser, fieldManager, auditID, transaction, since and afterRevision must be
// set. Limits of times and revisions are without the limit itself.
type ChangeSelector struct {
	User             string       `json:"user,omitempty" doc:"Only what this user did, or others in the name of this user, by impersonation."`
	ImpersonatedUser string       `json:"impersonatedUser,omitempty" doc:"Only what others did in the name of this user, by impersonation."`
	FieldManager     string       `json:"fieldManager,omitempty" doc:"Only what was done with this manager."`
	AuditID          string       `json:"auditID,omitempty" doc:"Only what was done by the request with this id in the audit log. All changes of one undo have the same. An id that a client has chosen begins with client: here."`
	Transaction      string       `json:"transaction,omitempty" doc:"Only what this transaction did; if several had the name, the last one."`
	Since            *metav1.Time `json:"since,omitempty"`
	Until            *metav1.Time `json:"until,omitempty"`
	AfterRevision    int64        `json:"afterRevision,omitempty" doc:"Only what was written after this revision."`
	BeforeRevision   int64        `json:"beforeRevision,omitempty" doc:"Only what was written before this revision."`
	Namespace        string       `json:"namespace,omitempty" doc:"Only what was done in this namespace."`
	Resources        []string     `json:"resources,omitempty" doc:"Only of these resources, such as configmaps or deployments.apps."` // none means all
}

// Status is the answer to an Undo.
type Status struct {
	Plan     []Step          `json:"plan" doc:"The steps in their order."`
	Complete bool            `json:"complete,omitempty" doc:"Set if after applying the plan nothing is left of it to do."`
	Applied  *ChangeSelector `json:"applied,omitempty" doc:"The changes that the undo has made, as spec.changes of one that takes them back."`
	Notes    []string        `json:"notes,omitempty" doc:"What concerns the whole plan."`
}

// Action is what a step does.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
	Leave  Action = "leave"
)

// Result is what became of a step.
type Result string

// The results. A plan that is not applied has none.
const (
	Done     Result = "done"
	Failed   Result = "failed"
	NotTried Result = "notTried"
)

// Step is what a plan does with one object.
type Step struct {
	Action    Action                `json:"action" doc:"create, update, delete or leave."`
	Object    StepReference         `json:"object" doc:"The object."`
	Reason    string                `json:"reason,omitempty" doc:"Why the object is left as it is."`
	Undoes    []ChangeReference     `json:"undoes,omitempty" doc:"The changes that the step takes back, the newest first; at most a few."`
	Diff      []changes.FieldChange `json:"diff,omitempty" doc:"The fields as they are and as they become. A step that creates an object has none."`
	Warnings  []string              `json:"warnings,omitempty" doc:"What will be different from what was."`
	Conflicts []Conflict            `json:"conflicts,omitempty" doc:"Later changes by others to what the undo would change."`
	Result    Result                `json:"result,omitempty" doc:"done, failed or notTried; absent if the plan is not applied."`
	Message   string                `json:"message,omitempty" doc:"Why the step failed, or what it had to do differently."`
	Operation *apiextensionsv1.JSON `json:"operation,omitempty" doc:"With spec.operations: the step as an operation of a Transaction. Steps of objects that can have secret values have none."`
	Write     *Write                `json:"write,omitempty" doc:"With spec.operations, in a mirror of another cluster: what the step writes there, for sqube undo --mirror."`

	work    *work
	failure error // the last one
}

// StepReference names the object of a step.
type StepReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Resource   string `json:"resource"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// ChangeReference names a change in history.
type ChangeReference struct {
	Revision         int64       `json:"revision" doc:"Its revision."`
	Operation        string      `json:"operation" doc:"create, update or delete."`
	Time             metav1.Time `json:"time"`
	User             string      `json:"user,omitempty" doc:"Who made it."`
	ImpersonatedUser string      `json:"impersonatedUser,omitempty" doc:"In whose name, if that was another's."`
	FieldManager     string      `json:"fieldManager,omitempty" doc:"With which manager."`
}

// Conflict is a later change to what the undo would change.
type Conflict struct {
	Path   string          `json:"path,omitempty" doc:"The field; absent for the whole object."`
	Change ChangeReference `json:"change" doc:"A change in history."`
	Forced bool            `json:"forced,omitempty" doc:"Set if the undo overwrites it."`

	destroys bool // it is of what a deletion would destroy
}

// DeepCopyObject implements runtime.Object.
func (u *Undo) DeepCopyObject() runtime.Object { return changes.Copy(u) }
