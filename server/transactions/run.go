package transactions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

const (
	// attempts is how often a transaction is run whose objects others change at the same time.
	attempts = 8
	// firstPause is the longest pause before the second attempt; each later one can be twice as long.
	firstPause = 5 * time.Millisecond
	// answerBytes is how many bytes a byte of an answer takes until the transaction is answered.
	answerBytes = 2
	// kept is how long the record of a transaction is kept.
	kept = 24 * time.Hour
)

// The annotations of audit events of operations: the name of the transaction, and what became of it.
const (
	NameAnnotation    = "history.sqube.io/transaction"
	OutcomeAnnotation = "history.sqube.io/transaction-outcome"
)

const kindName = "Transaction"

var kind = changes.GroupVersion.WithKind(kindName).GroupKind()

var resource = schema.GroupResource{Group: changes.GroupVersion.Group, Resource: Resource}

// run runs the transaction as the user of the request.
func (r *REST) run(ctx context.Context, t *Transaction, namespace string, dryRun bool) error {
	calls, err := r.calls(t, namespace)
	if apierrors.IsInvalid(err) { // perhaps because this server has not seen a definition yet
		if err := r.Served.Current(ctx); err != nil {
			return err
		}
		calls, err = r.calls(t, namespace)
	}
	if err != nil {
		return err
	}
	audit.AddAuditAnnotation(ctx, NameAnnotation, t.Name)
	err = r.again(ctx, t.Name, func() error { return r.attempt(ctx, t, calls, namespace, dryRun) })
	t.warn(ctx)
	t.Spec.Require, t.Spec.Operations = nil, nil // the answer would be twice as large
	return err
}

// warn passes on the warnings of the operations.
func (t *Transaction) warn(ctx context.Context) {
	for i := range t.Status.Operations {
		for _, text := range t.Status.Operations[i].Warnings {
			warning.AddWarning(ctx, "", fmt.Sprintf("operations[%d]: %s", i, text))
		}
	}
}

// calls returns the requests of the operations, or an API error that names all that are invalid.
func (r *REST) calls(t *Transaction, namespace string) ([]*call, error) {
	invalid := t.Spec.confirmation()
	operations := field.NewPath("spec", "operations")
	if n, most := len(t.Spec.Operations)+len(t.Spec.Require), r.Options.MaxOperations; n > most {
		return nil, apierrors.NewInvalid(kind, t.Name, field.ErrorList{field.TooMany(operations, n, most)})
	}
	calls, paths := make([]*call, len(t.Spec.Operations)), &paths{r.Served, namespace, definitions(t.Spec.Operations)}
	for i := range t.Spec.Operations {
		c, err := paths.call(&t.Spec.Operations[i], operations.Index(i))
		if err != nil {
			invalid = append(invalid, err)
		}
		calls[i] = c
	}
	if len(invalid) > 0 {
		return nil, apierrors.NewInvalid(kind, t.Name, invalid)
	}
	return calls, nil
}

// attempt runs the operations and commits what they have written. It returns sqlstore.ErrConflict if others have written meanwhile.
func (r *REST) attempt(ctx context.Context, t *Transaction, calls []*call, namespace string, dryRun bool) error {
	gathering, err := r.Store.Begin(ctx, t.Name, r.Options.limits())
	if err != nil {
		return apistorage.ClientError(err)
	}
	defer gathering.End()
	if err := t.Spec.mustBeConfirmed(gathering); err != nil {
		return err
	}
	ctx = sqlstore.WithTransaction(ctx, gathering)
	transport, auditID, err := r.transport(ctx)
	if err != nil {
		return err
	}
	gathering.AuditID, gathering.DryRun = auditID, dryRun
	t.Status = Status{AuditID: auditID}
	if caller, ok := request.UserFrom(ctx); ok {
		t.Status.User = caller.GetName()
	}
	share := r.answers.Share()
	gathering.AtEnd(func(sqlstore.Outcome) { share.Release() })
	if err := r.require(ctx, transport, t.Spec.Require, namespace); err != nil {
		return err
	}
	for i, c := range calls {
		body, warnings, err := c.send(ctx, transport)
		if err != nil {
			return c.failed(i, err)
		}
		if err := share.Reserve(ctx, answerBytes*len(body)); err != nil {
			return err
		}
		result, err := c.result(body, warnings)
		if err != nil {
			return err
		}
		t.Status.Operations = append(t.Status.Operations, result)
	}
	if dryRun {
		return t.Status.uncommitted()
	}
	return r.commit(ctx, t, gathering)
}

// transport returns the transport of requests of the user of ctx, which have the audit id and the manager of its request. They join the
// transaction of their own contexts.
func (r *REST) transport(ctx context.Context) (http.RoundTripper, string, error) {
	config, auditID, err := r.OnBehalf(ctx)
	if err != nil {
		return nil, "", err
	}
	config.UserAgent = sqlstore.AuthorFrom(ctx).FieldManager
	config.Wrap(undo.WithAuditID(auditID))
	transport, err := clientrest.TransportFor(config)
	return transport, auditID, err
}

// failed returns the error of an operation as that of the transaction: the same code, reason and details, and which operation it is.
func (c *call) failed(index int, err error) error {
	failure, ok := err.(apierrors.APIStatus)
	if !ok {
		return err
	}
	status := failure.Status()
	at := field.NewPath("spec", "operations").Index(index).String()
	cause := metav1.StatusCause{Type: "TransactionOperation", Field: at, Message: status.Message}
	details := metav1.StatusDetails{}
	if status.Details != nil {
		details = *status.Details
	}
	details.Causes = append([]metav1.StatusCause{cause}, details.Causes...)
	name := cache.NewObjectName(c.target.Namespace, c.target.Name)
	status.Details = &details
	status.Message = fmt.Sprintf("nothing was written: operations[%d], %s %s %s: %s", index, c.verb, c.target.Kind, name, status.Message)
	return &apierrors.StatusError{ErrStatus: status}
}

// record is what is stored of a transaction.
type record struct {
	Status Status  `json:"status"`
	Rows   []int64 `json:"rows"` // of each operation: how much its revision is after that of the record; 0 if it has written nothing
	// First is the revision of the first version of the record, after which the rows are. Later versions have it.
	First int64 `json:"first,omitempty"`
}

// commit commits what was gathered, and completes the status.
func (r *REST) commit(ctx context.Context, t *Transaction, gathering *sqlstore.Transaction) error {
	now := inSeconds(time.Now())
	t.Status.Time = now
	stored := record{Rows: make([]int64, len(t.Status.Operations))}
	expires := now.Add(kept).UnixMilli()
	if c := gathering.Confirmation; c.Within > 0 {
		if err := r.await(ctx, t, c); err != nil {
			return apistorage.ClientError(err)
		}
		expires = 0 // until it is settled
	}
	var written int
	first, err := gathering.Commit(ctx, expires, func(writes []sqlstore.Gathered) ([]byte, error) {
		written = len(writes)
		if t.Spec.Stage == Commit { // its requests were no operations
			t.Status.Operations, stored.Rows = r.results(writes)
			stored.Status = t.Status
			return json.Marshal(stored)
		}
		rows := map[string]int64{}
		for i, w := range writes {
			if w.UID != "" { // else it is no object of the API
				rows[w.UID] = int64(i) + 1
			}
		}
		stored.Status = t.Status
		stored.Status.Operations = make([]Result, len(t.Status.Operations))
		for i, result := range t.Status.Operations {
			stored.Rows[i] = rows[result.UID]
			result.Object, result.Warnings = nil, nil
			stored.Status.Operations[i] = result
		}
		return json.Marshal(stored)
	})
	if errors.Is(err, sqlstore.ErrConflict) {
		return err
	}
	if err != nil {
		return uncommitted(t.Name, err)
	}
	if t.Status.State != "" {
		r.announce(t.Name, t.Status)
	}
	return t.Status.committed(first, first+int64(written), stored.Rows)
}

// inSeconds returns a moment as the API has it.
func inSeconds(t time.Time) *metav1.Time {
	at := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &at
}

// committed sets the revisions of what was committed.
func (s *Status) committed(first, last int64, rows []int64) error {
	s.ResourceVersion = fmt.Sprint(last)
	for i := range s.Operations {
		result := &s.Operations[i]
		if result.Unchanged = rows[i] == 0; result.Unchanged {
			if err := result.unwritten(); err != nil {
				return err
			}
		} else if err := result.committedAs(first + rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// uncommitted takes provisional revisions out of the answer to a dry run.
func (s *Status) uncommitted() error {
	for i := range s.Operations {
		if err := s.Operations[i].unwritten(); err != nil {
			return err
		}
	}
	return nil
}
