package server

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"unicode"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/sqlstore"
)

// withAuthor sets what the store records about the author of a write.
func (s *Server) withAuthor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		author := sqlstore.Author{FieldManager: fieldManager(r)}
		if s.audit.Backend != nil || r.Header.Get(auditinternal.HeaderAuditID) != "" { // which tells what belongs together, as in an undo
			author.AuditID = string(audit.GetAuditIDTruncated(r.Context()))
		}
		author.Address, _, _ = net.SplitHostPort(r.RemoteAddr) // not what headers say, which a client may set; "" within the process
		if user, ok := request.UserFrom(r.Context()); ok {
			author.User = user.GetName()
		}
		next.ServeHTTP(w, r.WithContext(sqlstore.WithAuthor(r.Context(), author)))
	})
}

// written reports whether a client may have written: at once if the database is not new, or if other servers share it.
type written struct {
	once sync.Once
	done chan struct{}
}

func newWritten(o *Options, store *sqlstore.Store) *written {
	w := &written{done: make(chan struct{})}
	if o.SharedDatastore || store.Stats().Revision > emptyRevision {
		w.note()
	}
	return w
}

// emptyRevision is that of a database that has just been created.
const emptyRevision = 1

func (w *written) note() { w.once.Do(func() { close(w.done) }) }

// byClients notes that a client writes.
func (w *written) byClients(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && !loopback.Made(r) {
			w.note()
		}
		next.ServeHTTP(rw, r)
	})
}

// fieldManager returns the name under which managedFields records the request: the given one, or the first part of the user
// agent. Writes with an invalid name are rejected, except deletions, for which upstream ignores the name.
func fieldManager(r *http.Request) string {
	name := r.URL.Query().Get("fieldManager")
	if name != "" && len(metav1validation.ValidateFieldManager(name, nil)) == 0 {
		return name
	}
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	printable := strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return -1
	}, strings.ToValidUTF8(agent, ""))
	return strings.ToValidUTF8(printable[:min(len(printable), metav1validation.FieldManagerMaxLength)], "")
}
