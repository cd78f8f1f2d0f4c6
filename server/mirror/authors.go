package mirror

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/sqlstore"
)

const (
	// auditDelay is how long a version waits for the audit event of the request that made it.
	auditDelay = 1500 * time.Millisecond
	// auditKept is how long an event waits for its version, and mostAudited how many do.
	auditKept, mostAudited = 2 * time.Minute, 50_000
)

// authors knows from audit events who made a version. A version that it does not know is by the manager that its managedFields name.
type authors struct {
	told bool // whether there is an audit log

	mu      sync.Mutex
	waiting map[target][]*request // in their order
	heard   map[string]bool       // the audit ids of order: an event may come twice
	order   []*request            // the oldest first
	more    chan struct{}         // closed when there are more
}

// target names an object in audit events. One that gets a generated name has none there.
type target struct{ group, resource, namespace, name string }

// request is a request that the cluster has answered.
type request struct {
	target
	verb    string
	version int64 // of the object that was returned, 0 if the log does not have it
	uid     string
	author  sqlstore.Author
	arrived time.Time
}

// made is what is known of a version without the audit log.
type made struct {
	target
	version  int64
	uid      string
	manager  string // of the entry of managedFields that is new; "" if that is not known
	created  bool
	deleted  bool // the object is gone
	deleting bool // its deletion has begun
}

func newAuthors(told bool) *authors {
	return &authors{told: told, waiting: map[target][]*request{}, heard: map[string]bool{}, more: make(chan struct{})}
}

// madeOf returns what an event says of a version. before returns the JSON of the one before.
func madeOf(e event, before func() []byte) made {
	s, o := e.stream, e.object
	m := made{version: o.ResourceVersion, deleted: e.deleted}
	m.group, m.resource = s.stored.Group, s.stored.Name
	m.namespace, m.name = splitKey(o.Object)
	was, exists := s.known[o.Object]
	if o.Metadata == nil {
		return m
	}
	m.uid, m.deleting = string(o.Metadata.GetUID()), o.Metadata.GetDeletionTimestamp() != nil
	m.created = !exists || was.uid != m.uid
	if e.deleted {
		return m
	}
	newest := newestEntries(o.Metadata.GetManagedFields())
	if len(newest) > 1 { // within a second
		var old struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if json.Unmarshal(before(), &old) == nil { // else it is encrypted, or there is none
			newest = slices.DeleteFunc(newest, func(entry metav1.ManagedFieldsEntry) bool { // what it had may belong to another now
				return slices.ContainsFunc(old.Metadata.ManagedFields, func(other metav1.ManagedFieldsEntry) bool {
					return entry.Manager == other.Manager && entry.Operation == other.Operation && entry.Subresource == other.Subresource && entry.Time.Equal(other.Time)
				})
			})
		}
	}
	if len(newest) > 0 {
		m.manager = newest[len(newest)-1].Manager
	}
	return m
}

// newestEntries returns the entries with the newest time, and those without one: kube-apiserver writes none for the subresource scale.
func newestEntries(all []metav1.ManagedFieldsEntry) (newest []metav1.ManagedFieldsEntry) {
	var last *metav1.Time
	for _, entry := range all {
		if entry.Time != nil && (last == nil || last.Before(entry.Time)) {
			last = entry.Time
		}
	}
	for _, entry := range all {
		if entry.Time == nil || entry.Time.Equal(last) {
			newest = append(newest, entry)
		}
	}
	return newest
}

// by reports whether a manager can have made the version.
func (m *made) by(manager string) bool { return m.manager == "" || m.manager == manager }

// splitKey returns the namespace and the name of the object that has a key.
func splitKey(key string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return namespace, name
	}
	return "", key
}

// add notes that the cluster has answered a request.
func (a *authors) add(r *request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard[r.author.AuditID] {
		return
	}
	a.heard[r.author.AuditID] = true
	now := time.Now()
	r.arrived = now
	a.waiting[r.target] = append(a.waiting[r.target], r)
	a.order = append(a.order, r)
	for len(a.order) > 0 && (now.Sub(a.order[0].arrived) > auditKept || len(a.order) > mostAudited) {
		a.drop(a.order[0])
		delete(a.heard, a.order[0].author.AuditID)
		a.order = a.order[1:]
	}
	close(a.more)
	a.more = make(chan struct{})
}

func (a *authors) drop(r *request) {
	left := slices.DeleteFunc(a.waiting[r.target], func(other *request) bool { return other == r })
	if a.waiting[r.target] = left; len(left) == 0 {
		delete(a.waiting, r.target)
	}
}

// of returns who made a version, if that is known.
func (a *authors) of(m made) (author sqlstore.Author, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.find(m)
}

// await is of with some time to learn it.
func (a *authors) await(ctx context.Context, m made, most time.Duration) (author sqlstore.Author, known bool) {
	late := time.After(most)
	for {
		a.mu.Lock()
		author, known = a.find(m)
		more := a.more
		a.mu.Unlock()
		if known {
			return author, true
		}
		select {
		case <-more:
		case <-late:
			return author, false
		case <-ctx.Done():
			return author, false
		}
	}
}

func (a *authors) find(m made) (author sqlstore.Author, known bool) {
	nameless, everything := m.target, m.target
	nameless.name = ""
	everything.name, everything.namespace = "", ""
	for _, exactly := range []bool{true, false} {
		for _, t := range []target{m.target, nameless, everything} {
			for _, r := range a.waiting[t] {
				if r.fits(&m, exactly) {
					if r.verb != deleteCollection {
						a.drop(r)
					}
					return r.author, true
				}
			}
		}
	}
	return author, false
}

const deleteCollection = "deletecollection"

// fits reports whether a request can have made a version: the one that it has returned, or, if the log does not have that, by what it did, and
// by whom.
func (r *request) fits(m *made, exactly bool) bool {
	if exactly || r.version != 0 && r.verb != "delete" && !m.deleted {
		return r.version != 0 && r.version == m.version && (r.name != "" || r.uid == m.uid)
	}
	switch r.verb {
	case "create":
		return m.created && m.by(r.author.FieldManager) || !m.created && !m.deleted && r.name != "" && r.uid == ""
	case "delete", deleteCollection:
		return m.deleted || m.deleting
	case "update", "patch":
		return r.name != "" && !m.created && (m.deleted || m.by(r.author.FieldManager)) || m.created && r.verb == "patch" && m.by(r.author.FieldManager)
	}
	return false
}
