package server

import (
	"maps"
	"net/http"
	"slices"
	"sync"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	apifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/transactions"
	"github.com/sqube/sqube/sqlstore"
)

// withAudit records requests. What is recorded of the operations of a transaction is held back until it ends, so that no record claims that
// something was written that was not.
func (s *Server) withAudit(next http.Handler) http.Handler {
	backend, policy := s.audit.Backend, s.audit.Policy
	if backend == nil || policy == nil {
		return next
	}
	others := apifilters.WithAudit(next, backend, policy, longRunning)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := sqlstore.TransactionFrom(r.Context())
		if info, ok := request.RequestInfoFrom(r.Context()); t == nil || ok && slices.Contains(reading, info.Verb) {
			others.ServeHTTP(w, r)
			return
		}
		held := t.Kept(s, func() any {
			h := &heldEvents{transaction: t, backend: backend, room: 4 * s.options.Transactions.MaxBytes.Value()}
			t.AtEnd(h.record)
			return h
		}).(*heldEvents)
		apifilters.WithAudit(next, held, policy, longRunning).ServeHTTP(w, r)
	})
}

// heldEvents are the audit events of the operations of a transaction.
type heldEvents struct {
	transaction *sqlstore.Transaction
	backend     audit.Sink

	mu     sync.Mutex
	events []*auditinternal.Event
	room   int64 // for bytes
}

// reading are the verbs of requests that write nothing.
var reading = []string{"get", "list", "watch"}

// eventBytes is what an event takes without its objects.
const eventBytes = 2 << 10

// ProcessEvents implements audit.Sink. What does not fit is recorded at once, as of an open transaction.
func (h *heldEvents) ProcessEvents(events ...*auditinternal.Event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, event := range events {
		held := *event // its objects do not change
		held.Annotations = maps.Clone(event.Annotations)
		if held.Annotations == nil {
			held.Annotations = map[string]string{}
		}
		held.Annotations[transactions.NameAnnotation] = h.transaction.Name()
		size := eventBytes
		if held.RequestObject != nil {
			size += len(held.RequestObject.Raw)
		}
		if held.ResponseObject != nil {
			size += len(held.ResponseObject.Raw)
		}
		if h.room -= int64(size); h.room < 0 {
			held.Annotations[transactions.OutcomeAnnotation] = "open"
			h.backend.ProcessEvents(&held)
			continue
		}
		h.events = append(h.events, &held)
	}
	return true
}

// record passes the events on, with the outcome of the transaction. Those of an attempt that is made again are dropped, as the attempts of
// other writes have none.
func (h *heldEvents) record(outcome sqlstore.Outcome) {
	h.mu.Lock()
	events := h.events
	h.events = nil
	h.mu.Unlock()
	if outcome == sqlstore.Conflicted {
		return
	}
	said := string(outcome)
	if h.transaction.DryRun {
		said = "dry run"
	}
	for _, event := range events {
		event.Annotations[transactions.OutcomeAnnotation] = said
	}
	h.backend.ProcessEvents(events...)
}
