package trial

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Answers gathers what the API answers to those who make a change. It is safe for concurrent use.
type Answers struct {
	mu       sync.Mutex
	refused  []Refusal
	warnings []string
	reasons  []string
	unsure   []Refusal // of requests of a command, which can go on without them
	blocked  []*Hold   // Pods that a budget keeps
}

// Refuse notes that the API has refused a request about an object.
func (a *Answers) Refuse(object string, err error) {
	a.refuse(refusal(object, err))
}

func (a *Answers) refuse(r Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.refused, r) {
		a.refused = append(a.refused, r)
	}
}

// refusal describes an error of the API.
func refusal(object string, err error) Refusal {
	r := Refusal{Object: object, Message: strings.Join(strings.Fields(err.Error()), " ")}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		r.Code, r.Reason = status.ErrStatus.Code, string(status.ErrStatus.Reason)
	}
	return r
}

// Fail notes that the change, or a part of it, was not made, for a reason in a whole sentence.
func (a *Answers) Fail(reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reasons = append(a.reasons, reason)
}

// Failures returns what Fail has noted.
func (a *Answers) Failures() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.reasons)
}

// Warn notes a warning of the API.
func (a *Answers) Warn(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text != "" && !slices.Contains(a.warnings, text) {
		a.warnings = append(a.warnings, text)
	}
}

// HandleWarningHeader implements rest.WarningHandler.
func (a *Answers) HandleWarningHeader(_ int, _, text string) { a.Warn(text) }

// commandRefused notes a request of a command that was refused. It counts if the command fails.
func (a *Answers) commandRefused(r Refusal) {
	const most = 100
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.unsure) < most && !slices.Contains(a.unsure, r) {
		a.unsure = append(a.unsure, r)
	}
}

// block notes that a disruption budget keeps a Pod, by the path and the answer of a request to evict it.
func (a *Answers) block(path string, status *metav1.Status) {
	parts := strings.Split(strings.Trim(path, "/"), "/") // api/v1/namespaces/NAMESPACE/pods/NAME/eviction
	if len(parts) != 7 {
		return
	}
	h := &Hold{Kind: "budget", Object: Reference{APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: parts[3], Name: parts[5]}, Message: status.Message, Times: 1}
	if d := status.Details; d != nil && len(d.Causes) > 0 {
		h.Message = d.Causes[0].Message
	}
	_, h.By = stoppedBy(h.Message)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.blocked {
		if other.Object == h.Object {
			other.Times++
			return
		}
	}
	a.blocked = append(a.blocked, h)
}

// commandEnded decides what refused requests of a command mean.
func (a *Answers) commandEnded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.unsure {
		if len(a.reasons) > 0 {
			a.refused = append(a.refused, r)
		} else {
			a.warnings = append(a.warnings, "a request was refused, and the command went on: "+r.Message)
		}
	}
	a.unsure = nil
}

// into adds the answers to a result.
func (a *Answers) into(r *Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Refused, r.Warnings, r.Reasons = append(a.refused, r.Refused...), append(a.warnings, r.Warnings...), append(a.reasons, r.Reasons...)
	for _, h := range a.blocked {
		r.Held = append(r.Held, *h)
	}
}

// refusing reports whether an answer with a code says that a request was not allowed or not valid, rather than that it came too early or
// too late, which commands try again.
func refusing(method string, code int) bool {
	switch code {
	case http.StatusForbidden:
		return true
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return method != http.MethodGet
	}
	return false
}

// touched returns the objects that the user has changed.
func (o *outcome) touched() (all []Reference) {
	for k, l := range o.lives {
		if l.byUser() {
			version := schema.GroupVersion{Group: k.Group}
			if kind, ok := o.served.KindOf(k.GroupResource); ok {
				version = kind.GroupVersion()
			}
			all = append(all, Reference{APIVersion: version.String(), Resource: k.Resource, Namespace: k.namespace, Name: k.name, UID: l.uid})
		}
	}
	return all
}
