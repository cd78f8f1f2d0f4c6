// Package history records the requests of clients and their responses, with the time of each, so that they can be checked
// afterwards against the promises of the server.
package history

import (
	"fmt"
	"sync"
	"time"
)

// Object is one version of an object, as far as the checks need it.
type Object struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Version is its resourceVersion.
	Version uint64 `json:"version"`
	// Mark identifies its last write.
	Mark string `json:"mark"`
	// Group is the value of a label that writers set at random, and that watches and lists select by.
	Group string `json:"group"`
	// Amount is what an account has; see check.Transactions.
	Amount int `json:"amount,omitempty"`
}

// Key identifies an object over time: its resource (plural) and its name.
type Key struct{ Resource, Name string }

func (k Key) String() string { return k.Resource + "/" + k.Name }

// Verb is what an Operation does.
type Verb string

// The verbs. An apply creates the object if it does not exist.
const (
	Create Verb = "create"
	Update Verb = "update"
	Apply  Verb = "apply"
	Delete Verb = "delete"
	Get    Verb = "get"
)

// Outcome is what a client knows about a request.
type Outcome string

const (
	// Done: the response confirms it.
	Done Outcome = "done"
	// Absent, Exists and Conflict: it was not done, since there was no such object, it already existed, or it did not meet the
	// precondition.
	Absent   Outcome = "absent"
	Exists   Outcome = "exists"
	Conflict Outcome = "conflict"
	// Unknown: there was no response, or one that leaves open whether it was done or will be.
	Unknown Outcome = "unknown"
	// Unsent: the request never reached a server, or the server rejected it unprocessed.
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
	Mark   string `json:"mark,omitempty"`
	Group  string `json:"group,omitempty"`
	Amount int    `json:"amount,omitempty"`
	// Transaction is the name of the transaction that it is a part of. One that was refused is not recorded.
	Transaction string `json:"transaction,omitempty"`
	// IfVersion and IfUID are the preconditions of an update or delete, 0 and "" for none.
	IfVersion uint64 `json:"ifVersion,omitempty"`
	IfUID     string `json:"ifUID,omitempty"`

	Outcome Outcome `json:"outcome"`
	// Object is the result of a get or a write; of a delete only the UID. It is valid if the outcome is Done.
	Object Object `json:"object,omitzero"`
	// Error is the message of the response, or why there is none.
	Error string `json:"error,omitempty"`
}

// Writes reports whether the operation changes the object.
func (o *Operation) Writes() bool { return o.Verb != Get }

// List is a complete list, read at once or in pages.
type List struct {
	Client   int           `json:"client"`
	Call     time.Duration `json:"call"`   // of the first page
	Return   time.Duration `json:"return"` // of the last one
	Resource string        `json:"resource"`
	Group    string        `json:"group,omitempty"` // selects; "" for all
	// Asked is the requested revision: the exact one, with Exact, or the oldest acceptable one; 0 for the newest.
	Asked uint64 `json:"asked,omitempty"`
	Exact bool   `json:"exact,omitempty"`
	// Cached is true if any state is acceptable: resourceVersion=0.
	Cached bool   `json:"cached,omitempty"`
	Pages  []Page `json:"pages"`
}

// Page is the response to a list request, and the server that sent it.
type Page struct {
	Server  int      `json:"server"`
	Version uint64   `json:"version"`
	Objects []Object `json:"objects"`
}

// Version returns the revision of the list.
func (l *List) Version() uint64 { return l.Pages[0].Version }

// Watch is one watch, from its request to the end of its stream.
type Watch struct {
	Client   int           `json:"client"`
	Server   int           `json:"server"`
	Call     time.Duration `json:"call"`
	Resource string        `json:"resource"`
	Group    string        `json:"group,omitempty"` // selects; "" for all
	// From is the revision after which it starts.
	From uint64 `json:"from"`
	// Initial is true if it starts with the state, ended by a bookmark: sendInitialEvents.
	Initial bool    `json:"initial,omitempty"`
	Events  []Event `json:"events"`
	// End is how the stream ended.
	End string `json:"end"`
}

// Informer is what the handler of one of client-go's informers received. A deletion that it learnt of from a list shows the last
// version that it knew.
type Informer struct {
	Server   int     `json:"server"`
	Resource string  `json:"resource"`
	Events   []Event `json:"events"`
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

// Event is one event of a watch. The object of a bookmark has only a version.
type Event struct {
	At     time.Duration `json:"at"`
	Type   EventType     `json:"type"`
	Object Object        `json:"object"`
	// EndsInitial marks the bookmark that ends the initial state of a watch.
	EndsInitial bool `json:"endsInitial,omitempty"`
}

// History is everything recorded.
type History struct {
	Operations []*Operation
	Lists      []*List
	Watches    []*Watch
	Informers  []*Informer
}

// String returns how many records of each kind there are.
func (h *History) String() string {
	outcomes, transactions := map[Outcome]int{}, map[string]bool{}
	for _, o := range h.Operations {
		outcomes[o.Outcome]++
		if o.Transaction != "" && o.Outcome == Done {
			transactions[o.Transaction] = true
		}
	}
	events := 0
	for _, w := range h.Watches {
		events += len(w.Events)
	}
	return fmt.Sprintf("%d operations %v, %d transactions done, %d lists, %d watches with %d events", len(h.Operations), outcomes, len(transactions), len(h.Lists), len(h.Watches), events)
}

// Recorder collects a History. It is safe for concurrent use. Records passed to it must not change afterwards.
type Recorder struct {
	start time.Time
	mu    sync.Mutex
	h     History
}

// NewRecorder returns a Recorder whose history starts now.
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

// Informer records what an informer received.
func (r *Recorder) Informer(i *Informer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Informers = append(r.h.Informers, i)
}

// Acknowledged returns how many writes were acknowledged so far.
func (r *Recorder) Acknowledged() (n int) {
	for _, o := range r.History().Operations {
		if o.Writes() && o.Outcome == Done {
			n++
		}
	}
	return n
}

// History returns everything recorded so far.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.h
	return &h
}
