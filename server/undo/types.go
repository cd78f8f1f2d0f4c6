package undo

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Undo plans, and with spec.apply applies, what takes changes back. It is not stored.
type Undo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// Spec is what to undo: exactly one of object and changes.
type Spec struct {
	// object is what to bring back. With a Namespace or a CustomResourceDefinition comes what was in it.
	Object *ObjectReference `json:"object,omitempty"`
	// to is the moment to which the object is brought back. If it is unset, the object must have been deleted, and its last version comes back.
	To *Moment `json:"to,omitempty"`
	// changes are those to take back, whatever they are of.
	Changes *ChangeSelector `json:"changes,omitempty"`
	// force overwrites later changes by others.
	Force bool `json:"force,omitempty"`
	// apply applies the plan. Otherwise it is only returned.
	Apply bool `json:"apply,omitempty"`
}

// ObjectReference names an object, by its kind or by its resource.
type ObjectReference struct {
	// apiVersion is the group of the kind, with or without a version.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Group      string `json:"group,omitempty"`
	Resource   string `json:"resource,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// Moment is exactly one of its fields.
type Moment struct {
	// revision is a resourceVersion: what was written up to it stays.
	Revision int64 `json:"revision,omitempty"`
	// before is the revision of the first change to take back.
	Before int64        `json:"before,omitempty"`
	Time   *metav1.Time `json:"time,omitempty"`
}

// ChangeSelector selects changes. At least one of user, fieldManager, auditID, since and afterRevision must be set.
type ChangeSelector struct {
	User         string `json:"user,omitempty"`
	FieldManager string `json:"fieldManager,omitempty"`
	// auditID is that of a request. All changes of one undo have the same.
	AuditID string `json:"auditID,omitempty"`
	// since and until limit the time of the changes, afterRevision and beforeRevision their revisions, both without the limit itself.
	Since          *metav1.Time `json:"since,omitempty"`
	Until          *metav1.Time `json:"until,omitempty"`
	AfterRevision  int64        `json:"afterRevision,omitempty"`
	BeforeRevision int64        `json:"beforeRevision,omitempty"`
	Namespace      string       `json:"namespace,omitempty"`
	// resources are RESOURCE or RESOURCE.GROUP, such as deployments.apps. None means all.
	Resources []string `json:"resources,omitempty"`
}

// Status is the answer to an Undo.
type Status struct {
	// plan has the steps in their order.
	Plan []Step `json:"plan"`
	// complete is set if after applying the plan nothing is left of it to do.
	Complete bool `json:"complete,omitempty"`
	// applied selects the changes that the undo has made, and no others, nil if there are none. They can be undone with it as changes.
	Applied *ChangeSelector `json:"applied,omitempty"`
	// notes say what concerns the whole plan, such as how far history reaches.
	Notes []string `json:"notes,omitempty"`
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
	Action Action        `json:"action"`
	Object StepReference `json:"object"`
	// reason says why the object is left as it is.
	Reason string `json:"reason,omitempty"`
	// undoes are the changes that the step takes back, the newest first; at most a few.
	Undoes []ChangeReference `json:"undoes,omitempty"`
	// diff has the fields as they are and as they become. A step that creates an object has none.
	Diff      []FieldChange `json:"diff,omitempty"`
	Warnings  []string      `json:"warnings,omitempty"`
	Conflicts []Conflict    `json:"conflicts,omitempty"`
	Result    Result        `json:"result,omitempty"`
	// message says why the step failed, or what it had to do differently.
	Message string `json:"message,omitempty"`

	work *work
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
	Revision     int64       `json:"revision"`
	Operation    string      `json:"operation"`
	Time         metav1.Time `json:"time"`
	User         string      `json:"user,omitempty"`
	FieldManager string      `json:"fieldManager,omitempty"`
}

// FieldChange is a field of an object. Values are JSON; of Secrets, only sizes.
type FieldChange struct {
	Path string `json:"path"`
	// from is "" if the field is not there, to is "" if it is removed.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Conflict is a later change to what the undo would change.
type Conflict struct {
	// path is the field; "" for the whole object.
	Path   string          `json:"path,omitempty"`
	Change ChangeReference `json:"change"`
	// forced is set if the undo overwrites it.
	Forced bool `json:"forced,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (u *Undo) DeepCopyObject() runtime.Object {
	c := *u
	c.ObjectMeta = *u.ObjectMeta.DeepCopy()
	c.Spec = u.Spec.deepCopy()
	c.Status = u.Status.deepCopy()
	return &c
}

func (s Spec) deepCopy() Spec {
	s.Object = pointer(s.Object)
	if s.To != nil {
		s.To = pointer(s.To)
		s.To.Time = s.To.Time.DeepCopy()
	}
	s.Changes = s.Changes.deepCopy()
	return s
}

func (c *ChangeSelector) deepCopy() *ChangeSelector {
	if c = pointer(c); c != nil {
		c.Since, c.Until = c.Since.DeepCopy(), c.Until.DeepCopy()
		c.Resources = append([]string(nil), c.Resources...)
	}
	return c
}

func (s Status) deepCopy() Status {
	s.Applied = s.Applied.deepCopy()
	s.Notes = append([]string(nil), s.Notes...)
	s.Plan = append([]Step(nil), s.Plan...)
	for i := range s.Plan {
		step := &s.Plan[i]
		step.Undoes = append([]ChangeReference(nil), step.Undoes...)
		step.Diff = append([]FieldChange(nil), step.Diff...)
		step.Warnings = append([]string(nil), step.Warnings...)
		step.Conflicts = append([]Conflict(nil), step.Conflicts...)
	}
	return s
}

func pointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
