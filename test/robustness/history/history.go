// Package history records what clients asked a server and what they were told, with the time of each, so that it can be
// checked afterwards against what the server promises.
package history

import (
	"fmt"
	"sync"
	"time"
)

// Object is one version of an object, as far as the checks look at it.
type Object struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Version is its resourceVersion.
	Version uint64 `json:"version"`
	// Mark is what its last writer put into it. No two writes put the same.
	Mark string `json:"mark"`
	// Group is the value of a label that writers set at random, for watches and lists that select by it.
	Group string `json:"group"`
}

// Key identifies an object over time: its resource in the plural and its name.
type Key struct{ Resource, Name string }

func (k Key) String() string { return k.Resource + "/" + k.Name }

// Verb is what an Operation does.
type Verb string

// The verbs. An apply creates the object when there is none.
const (
	Create Verb = "create"
	Update Verb = "update"
	Apply  Verb = "apply"
	Delete Verb = "delete"
	Get    Verb = "get"
)

// Outcome is what a client knows of a request.
type Outcome string

const (
	// Done: the answer says that it was done.
	Done Outcome = "done"
	// Absent, Exists and Conflict: it was not done, since there was no such object, since there was one already, or since
	// the object was in another version than the request named.
	Absent   Outcome = "absent"
	Exists   Outcome = "exists"
	Conflict Outcome = "conflict"
	// Unknown: there was no answer, or one that leaves open whether it was done or will yet be.
	Unknown Outcome = "unknown"
	// Unsent: the request never reached a server, or one that refused it before it looked at it.
	Unsent Outcome = "unsent"
)

// Operation is a request for one object. Times are since the start of the history.
type Operation struct {
	Client int           `json:"client"`
	Server int           `json:"server"`
	Call   time.Duration `json:"call"`
	Return time.Duration `json:"return"`
	Verb   Verb          `json:"verb"`
	Key    Key           `json:"key"`
	// Mark and Group are what a create, update or apply puts into the object.
	Mark  string `json:"mark,omitempty"`
	Group string `json:"group,omitempty"`
	// IfVersion and IfUID are what an update or delete wants replaced, 0 and "" for whatever there is.
	IfVersion uint64 `json:"ifVersion,omitempty"`
	IfUID     string `json:"ifUID,omitempty"`

	Outcome Outcome `json:"outcome"`
	// Object is what a get returned, or what a write made of it; of a delete its UID alone. It counts when the outcome is Done.
	Object Object `json:"object,omitzero"`
	// Error is the answer's message, or why there is none.
	Error string `json:"error,omitempty"`
}

// Writes tells whether the operation changes the object.
func (o *Operation) Writes() bool { return o.Verb != Get }

// List is a list, whole or in pages, that was read to its end.
type List struct {
	Client   int           `json:"client"`
	Call     time.Duration `json:"call"`   // of the first page
	Return   time.Duration `json:"return"` // of the last one
	Resource string        `json:"resource"`
	Group    string        `json:"group,omitempty"` // selects; "" for all
	// Asked is the revision that the list was asked to be of, with Exact, or not to be older than; 0 for the newest.
	Asked uint64 `json:"asked,omitempty"`
	Exact bool   `json:"exact,omitempty"`
	// Cached says that any state would do: resourceVersion=0.
	Cached bool   `json:"cached,omitempty"`
	Pages  []Page `json:"pages"`
}

// Page is an answer to a list request, and the server that gave it.
type Page struct {
	Server  int      `json:"server"`
	Version uint64   `json:"version"`
	Objects []Object `json:"objects"`
}

// Version is the revision of which the list is.
func (l *List) Version() uint64 { return l.Pages[0].Version }

// Watch is one watch, from its request to the end of its stream.
type Watch struct {
	Client   int           `json:"client"`
	Server   int           `json:"server"`
	Call     time.Duration `json:"call"`
	Resource string        `json:"resource"`
	Group    string        `json:"group,omitempty"` // selects; "" for all
	// From is the revision behind which it was to begin.
	From uint64 `json:"from"`
	// Initial says that it was to begin with the state, ended by a bookmark: sendInitialEvents.
	Initial bool    `json:"initial,omitempty"`
	Events  []Event `json:"events"`
	// End says how the stream ended.
	End string `json:"end"`
}

// EventType is the type of an Event.
type EventType string

// The types of events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is one event of a watch. Of the object of a bookmark only the version counts.
type Event struct {
	At     time.Duration `json:"at"`
	Type   EventType     `json:"type"`
	Object Object        `json:"object"`
	// EndsInitial marks the bookmark that ends the state with which a watch began.
	EndsInitial bool `json:"endsInitial,omitempty"`
}

// History is all that was recorded.
type History struct {
	Operations []*Operation
	Lists      []*List
	Watches    []*Watch
}

// String says how much there is of what.
func (h *History) String() string {
	outcomes := map[Outcome]int{}
	for _, o := range h.Operations {
		outcomes[o.Outcome]++
	}
	events := 0
	for _, w := range h.Watches {
		events += len(w.Events)
	}
	return fmt.Sprintf("%d operations %v, %d lists, %d watches with %d events", len(h.Operations), outcomes, len(h.Lists), len(h.Watches), events)
}

// Recorder collects a History. It is safe for concurrent use. What is handed to it must not change any more.
type Recorder struct {
	start time.Time
	mu    sync.Mutex
	h     History
}

// NewRecorder returns a Recorder of a history that starts now.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now returns the time since the start of the history. It never steps.
func (r *Recorder) Now() time.Duration { return time.Since(r.start) }

// Operation records an operation.
func (r *Recorder) Operation(o *Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Operations = append(r.h.Operations, o)
}

// List records a list.
func (r *Recorder) List(l *List) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Lists = append(r.h.Lists, l)
}

// Watch records a watch that has ended.
func (r *Recorder) Watch(w *Watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Watches = append(r.h.Watches, w)
}

// History returns what was recorded so far.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.h
	return &h
}
