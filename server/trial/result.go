package trial

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/changes"
)

// Result is the answer of a trial: what a change did to a copy of a cluster. What the copy does by itself, without the change, is left out. Its JSON
// is what sqube try -o json prints.
type Result struct {
	Verdict Verdict `json:"verdict"`
	// Reasons say why the verdict is not AtRest, in whole sentences, the most important one first.
	Reasons []string `json:"reasons,omitempty"`

	Tried     Tried        `json:"tried"`
	Refused   []Refusal    `json:"refused,omitempty"`   // of the change itself
	Tree      []*Object    `json:"tree,omitempty"`      // the objects that the user has changed, and below them what followed
	Elsewhere []*Object    `json:"elsewhere,omitempty"` // what else is different from the copy without the change, whatever the reason
	Timeline  []Moment     `json:"timeline,omitempty"`
	Pending   []PendingPod `json:"pending,omitempty"` // at the end
	Held      []Hold       `json:"held,omitempty"`
	Evicted   []Eviction   `json:"evicted,omitempty"`
	Fights    []Fight      `json:"fights,omitempty"`
	Warnings  []string     `json:"warnings,omitempty"` // that the API gave the user: deprecations, policies that warn
	Webhooks  []Webhook    `json:"webhooks,omitempty"`
	Events    []Event      `json:"events,omitempty"` // new kinds of Events: warnings first
	NotRun    []NotRun     `json:"notRun,omitempty"`
	// Command makes the change for real.
	Command string `json:"command,omitempty"`
	// Touched are all objects that the user has changed.
	Touched []Reference `json:"-"`
	// Omitted is how many entries of a list are left out, by the name of the list.
	Omitted map[string]int `json:"omitted,omitempty"`
}

// Verdict says how a trial ended.
type Verdict string

const (
	// AtRest is that all that was asked has been done, and nothing waits, fails or changes any more.
	AtRest Verdict = "AtRest"
	// NotAtRest is that something of the change waits, fails, or goes on changing at the end.
	NotAtRest Verdict = "NotAtRest"
	// Refused is that the API has refused the change, or a part of it.
	RefusedChange Verdict = "Refused"
)

// Tried is what was tried, and on what.
type Tried struct {
	Source  string    `json:"source"`            // what was copied, in words: a context, a file
	Moment  time.Time `json:"moment"`            // when its state is of
	Missing []string  `json:"missing,omitempty"` // what could not be copied, and why
	Objects int       `json:"objects"`
	Nodes   int       `json:"nodes"` // that were simulated
	User    string    `json:"user"`
	Change  string    `json:"change"` // the files or the command, in words
	Begin   time.Time `json:"begin"`  // when the change was made, in the time of the copy
	For     Duration  `json:"for"`    // how long the copy was watched from then on
}

// Duration is a time after the change, in whole seconds in JSON.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, int64(time.Duration(d)/time.Second), 10), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(text []byte) error {
	seconds, err := strconv.ParseInt(string(text), 10, 64)
	*d = Duration(time.Duration(seconds) * time.Second)
	return err
}

// String returns the duration as a clock shows it: 0:03, or 26:00:00.
func (d Duration) String() string {
	seconds := int64(time.Duration(d) / time.Second)
	if seconds < 3600 {
		return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}

// Reference names an object.
type Reference struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Resource   string    `json:"resource"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"`
}

// Object is an object that is not as it was.
type Object struct {
	Reference
	Operation Operation `json:"operation"`
	By        []string  `json:"by"`    // who changed it: users without their prefix, such as deployment-controller
	First     Duration  `json:"first"` // when it was changed first
	Last      Duration  `json:"last"`
	Writes    int       `json:"writes"`
	// Diff has the fields that differ at the end from what they would be without the change, without the status and what servers set.
	Diff []Difference `json:"diff,omitempty"`
	// State says how it is at the end, if that is not plain: "3 of 5 ready", "Pending".
	State string `json:"state,omitempty"`
	// Alike is how many more objects have been changed in the same way, and are not listed.
	Alike  int       `json:"alike,omitempty"`
	Caused []*Object `json:"caused,omitempty"`
	// Omitted is how many entries of diff and caused are left out.
	Omitted map[string]int `json:"omitted,omitempty"`
}

// Operation is what became of an object between the beginning and the end.
type Operation string

const (
	Created  Operation = "created"
	Changed  Operation = "changed"
	Deleted  Operation = "deleted"
	Replaced Operation = "replaced" // by another one of the same name
	Passing  Operation = "created and deleted"
	// What would have happened to an object without the change.
	NotCreated Operation = "not created"
	NotChanged Operation = "not changed"
	NotDeleted Operation = "not deleted"
)

// Difference is a field that is not as it would be without the change. From and To are its values in JSON, "" for none.
type Difference = changes.FieldChange

// Moment is a line of the time line: what an object had come to.
type Moment struct {
	At     Duration  `json:"at"`
	Object Reference `json:"object"`
	Text   string    `json:"text"` // "2 of 5 ready"
}

// Refusal is a request of the change that the API has refused.
type Refusal struct {
	Object  string `json:"object,omitempty"` // what it was about, if it is known
	Code    int32  `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"` // of the Status
	Message string `json:"message"`
}

// PendingPod is a Pod, with others that wait for the same reason, that runs nowhere at the end.
type PendingPod struct {
	Pod    Reference `json:"pod"`
	Alike  int       `json:"alike,omitempty"`
	Since  Duration  `json:"since"`
	Reason string    `json:"reason"` // the scheduler's message, or the node's
}

// Hold is something that stopped a controller or the user on the way: a quota, a limit, a policy, a disruption budget.
type Hold struct {
	Kind    string    `json:"kind"`         // quota, limit, policy, webhook, budget, access, other
	Object  Reference `json:"object"`       // what was stopped
	By      string    `json:"by,omitempty"` // the quota, policy or budget
	Message string    `json:"message"`
	Times   int       `json:"times"`
	At      Duration  `json:"at"`
}

// Eviction is a Pod that had to leave.
type Eviction struct {
	Pod    Reference `json:"pod"`
	At     Duration  `json:"at"`
	Reason string    `json:"reason"` // preempted by …, evicted by …
}

// Fight is a field that controllers do not leave alone: several change it to and fro, or one goes on changing it.
type Fight struct {
	Object Reference `json:"object"`
	Path   string    `json:"path"`
	By     []string  `json:"by"`
	Times  int       `json:"times"`
}

// Webhook is one that a real cluster would have asked.
type Webhook struct {
	Name   string `json:"name"`   // of the configuration, and the webhook in it
	Called bool   `json:"called"` // it was asked, since it is allowed
	Times  int    `json:"times"`
}

// Event is a kind of Event that the change has brought about.
type Event struct {
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Object  Reference `json:"object"`
	Times   int       `json:"times"`
	At      Duration  `json:"at"`
}

// NotRun is a controller, or a kind whose controller is not in the copy, so that what it would have done is missing.
type NotRun struct {
	Kind    string `json:"kind"`
	Objects int    `json:"objects"` // of that kind which the change touched
	Why     string `json:"why"`
}
